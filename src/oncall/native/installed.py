"""Install the hooks at a stable path for launchers.

    DIR/liboncall_hooks.so -> current/x86_64/liboncall_hooks.so     what a launcher names
    DIR/current -> versions/0.2.0-1c9f03a7be52                      switched in one step
    DIR/versions/0.2.0-1c9f03a7be52/{x86_64,aarch64}/...            never written to again

Jobs have the libraries mapped: a file written anew in place would change under them. So every
version has a folder of its own, and names are links that a rename replaces: who is killed, or
finds the disk full, leaves what was there before. Links are relative, as a container may have DIR
elsewhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from oncall import __version__
from oncall.core.errors import OncallError
from oncall.native import HOOKS, IBVERBS, VERBS, Architecture, hooks_folder

_DEFAULT = Path("/opt/oncall/hooks")
_CURRENT, _VERSIONS, _LOCK = "current", "versions", ".lock"
_NAMES = (HOOKS, VERBS, IBVERBS)
_UNFINISHED = ".new-"  # what a killed installation left behind begins with it
_READABLE, _PASSABLE = 0o644, 0o755  # by the job's user, whatever the installer's umask


class CannotInstall(OncallError):
    """The hooks cannot be installed into a folder, which is left unchanged."""


@dataclass(frozen=True)
class Installation:
    """A folder that hooks are installed in, and which version its names lead to."""

    folder: Path
    version: str

    def library(self, name: str, architecture: Architecture | None = None) -> Path:
        """The stable path of a library, for the architecture it was installed for if none is
        named. It lies in this folder whichever version is current."""
        return self.folder / (f"{_CURRENT}/{architecture}/{name}" if architecture else name)

    @property
    def others(self) -> tuple[Path, ...]:
        """The folders of versions that are not current; jobs may have them mapped."""
        versions = sorted((self.folder / _VERSIONS).glob("[!.]*"))
        return tuple(path for path in versions if path.name != self.version)


def default_folder() -> Path:
    """Where launchers find the hooks: `$ONCALL_HOOKS_DIR`, else /opt/oncall/hooks."""
    override = os.environ.get("ONCALL_HOOKS_DIR")
    return Path(override).absolute() if override else _DEFAULT


def installation(folder: Path | None = None) -> Installation | None:
    """What is installed there; None if nothing is."""
    folder = folder or default_folder()
    try:
        version = (folder / _CURRENT).readlink().name
        return Installation(folder, version) if (folder / HOOKS).is_file() else None
    except OSError:
        return None


def library_for_launchers(name: str, architecture: Architecture | None = None) -> Path:
    """A library where it is installed, else in this package. Raises NotBuilt."""
    found = installation()
    if found is not None and found.library(name, architecture).is_file():
        return found.library(name, architecture)
    return hooks_folder(architecture) / name


def version_here() -> str:
    """The version of this package's own libraries, override by what is in them."""
    digest = hashlib.sha256()
    for relative in _files():
        digest.update(f"{relative}\0".encode())
        digest.update((_source() / relative).read_bytes())
    return f"{__version__}-{digest.hexdigest()[:12]}"


def install(folder: Path, architecture: Architecture | None = None) -> Installation:
    """Have the names in `folder` lead to this package's libraries. Raises CannotInstall.

    `architecture`: of the machines that will load them; this one's if none is named.
    """
    architecture = architecture or Architecture.here()
    folder = folder.absolute()
    try:
        _make(folder)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            raise CannotInstall(f"{folder} is mounted noexec: no library can be loaded from there")
        version = version_here()
        with _locked(folder):
            _bring(folder / _VERSIONS, version)
            _lead(folder / _CURRENT, f"{_VERSIONS}/{version}")
            for name in (HOOKS, VERBS, Path(IBVERBS).parts[0]):
                _lead(folder / name, f"{_CURRENT}/{architecture}/{name}")
    except OSError as error:
        where = error.filename2 or error.filename or folder
        raise CannotInstall(
            f"the hooks cannot be installed into {folder}: {where}: {error.strerror}; "
            "name a folder that you may write, on a disk with room"
        ) from None
    return Installation(folder, version)


def _source() -> Path:
    return hooks_folder().parent


def _files() -> list[str]:
    """The libraries of every architecture, below the folder of each."""
    return [f"{architecture}/{name}" for architecture in Architecture for name in _NAMES]


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One installation at a time; the kernel releases the lock of one that is killed."""
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _READABLE)
    try:
        # Some file systems have no locks; two installations at once then fail, and harm nothing.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _make(folder: Path) -> None:
    """The folder, and those that it lies in; those made here may be passed by everyone."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(exist_ok=True)
        folder.chmod(_PASSABLE)


def _bring(versions: Path, version: str) -> None:
    """The folder of a version, complete on the disk before it has its name."""
    _make(versions)
    for left in versions.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(left)
    complete = versions / version
    if complete.exists():
        _check_unchanged(complete)
        return
    unfinished = versions / f"{_UNFINISHED}{version}"
    for relative in _files():
        to = unfinished / relative
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_source() / relative, to)
        to.chmod(_READABLE)
        _to_disk(to)
    for path in (unfinished, *unfinished.rglob("*/")):
        path.chmod(_PASSABLE)
        _to_disk(path)
    unfinished.rename(complete)
    _to_disk(versions)


def _check_unchanged(complete: Path) -> None:
    for relative in _files():
        path = complete / relative
        if not path.is_file() or path.read_bytes() != (_source() / relative).read_bytes():
            raise CannotInstall(
                f"{path} was changed after it was installed; when no job has it loaded: "
                f"rm -r {complete}, and install again"
            )


def _lead(link: Path, target: str) -> None:
    """Have a name lead elsewhere, in one step: whoever opens it finds the one or the other."""
    if link.is_symlink() and link.readlink() == Path(target):
        return
    unfinished = link.with_name(f"{_UNFINISHED}{link.name}")
    unfinished.unlink(missing_ok=True)
    unfinished.symlink_to(target)
    unfinished.replace(link)
    _to_disk(link.parent)


def _to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
