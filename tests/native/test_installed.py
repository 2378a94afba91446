"""Hooks at a path of their own: replaced under running jobs, whole or not at all."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import oncall
from oncall.native import HOOKS, IBVERBS, VERBS, Architecture, hooks_folder, installed
from oncall.native.elf import read_elf
from oncall.native.installed import CannotInstall, install, installation, library_for_launchers

NAMES = (HOOKS, VERBS, IBVERBS)


@pytest.fixture
def upgraded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has the package be another one, whose libraries end with the word given, or are no more."""
    original = hooks_folder().parent

    def upgrade(to: str, *, whole: bool = True) -> None:
        package = tmp_path / f"package-{to}"
        shutil.copytree(original, package / "_native")
        for path in package.rglob("*.so"):
            path.write_bytes((path.read_bytes() if whole else b"") + to.encode())
        monkeypatch.setattr(oncall, "__path__", [str(package)])

    return upgrade


def ends(folder: Path) -> set[bytes]:
    """The ends of what the names lead to."""
    return {(folder / name).read_bytes()[-5:] for name in NAMES}


def test_names_lead_to_this_machines_libraries(tmp_path: Path) -> None:
    found = install(tmp_path / "hooks")
    for name in NAMES:
        path = found.library(name)
        assert path == tmp_path / "hooks" / name
        assert path.read_bytes() == (hooks_folder() / name).read_bytes()
    for architecture in Architecture:
        path = found.library(HOOKS, architecture)
        assert read_elf(path).machine == architecture
    assert installation(tmp_path / "hooks") == found
    assert found.others == ()


def test_nodes_may_be_of_another_architecture(tmp_path: Path) -> None:
    for architecture in Architecture:
        install(tmp_path, architecture)
        assert {read_elf(tmp_path / name).machine for name in NAMES} == {architecture}


def test_everyone_may_read_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        install(tmp_path / "made/on the way")
    finally:
        os.umask(before)
    for path in (tmp_path / "made").rglob("*"):
        if not path.is_symlink() and path.name != ".lock":
            assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644), path


def test_launchers_are_given_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCALL_HOOKS_DIR", str(tmp_path / "hooks"))
    assert library_for_launchers(HOOKS) == hooks_folder() / HOOKS
    install(tmp_path / "hooks")
    assert library_for_launchers(HOOKS) == tmp_path / "hooks" / HOOKS
    assert library_for_launchers(HOOKS, Architecture.AARCH64).parent.name == "aarch64"


def test_a_running_process_keeps_what_it_has_loaded(
    tmp_path: Path, upgraded: Callable[..., None]
) -> None:
    upgraded("first")
    first = install(tmp_path / "hooks")
    program = f"import ctypes; library = ctypes.CDLL({str(first.library(HOOKS))!r}); input('ready')"
    program += "; print(library.ncclGroupEnd())"  # of a library that finds no NCCL: an error code
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdin and process.stdout
        assert process.stdout.read(5) == "ready"
        upgraded("again")
        second = install(tmp_path / "hooks")
        mapped = Path(f"/proc/{process.pid}/maps").read_text()
        assert f"{tmp_path}/hooks/versions/{first.version}/" in mapped
        assert "(deleted)" not in "".join(line for line in mapped.splitlines() if HOOKS in line)
        out, _ = process.communicate("\n", timeout=60)
    assert (process.returncode, out) == (0, "5\n")
    assert ends(tmp_path / "hooks") == {b"again"}
    assert [path.name for path in second.others] == [first.version]
    assert ends(second.others[0] / Architecture.here()) == {b"first"}


def install_and_die(folder: Path, at: int) -> bool:
    """In a child, killed as it is about to change the disk for the `at`th time; whether it was."""
    child = os.fork()
    if child == 0:
        left = at

        def killed_in(name: str) -> Callable[..., object]:
            real = getattr(os, name)

            def call(*arguments: object, **options: object) -> object:
                nonlocal left
                left -= 1
                if left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in ("mkdir", "symlink", "rename", "replace", "fsync"):
            setattr(os, name, killed_in(name))
        try:
            install(folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def test_who_is_killed_leaves_the_old_or_the_new(
    tmp_path: Path, upgraded: Callable[..., None]
) -> None:
    upgraded("first", whole=False)
    install(tmp_path / "pristine")
    upgraded("again", whole=False)
    found = []
    for at in range(1000):
        folder = tmp_path / f"at{at}"
        shutil.copytree(tmp_path / "pristine", folder, symlinks=True)
        killed = install_and_die(folder, at)
        [end] = ends(folder)
        found.append(end)
        install(folder)  # what was left behind is in nobody's way
        assert ends(folder) == {b"again"}
        assert not [path for path in folder.rglob(f"{installed._UNFINISHED}*")]
        shutil.rmtree(folder)
        if not killed:
            break
    assert not killed and len(found) > 20
    assert found == sorted(found, reverse=True)  # first the old ones, then the new
    assert set(found) == {b"first", b"again"}


def test_what_was_changed_since_is_said(tmp_path: Path) -> None:
    changed = install(tmp_path).library(HOOKS).resolve()
    changed.write_bytes(b"")
    with pytest.raises(CannotInstall, match=r"was changed after it was installed.*rm -r"):
        install(tmp_path)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.write_text(""), "Not a directory|File exists"),
        (lambda path: (path / IBVERBS).parent.mkdir(parents=True), "Is a directory"),
        (lambda path: path.symlink_to("/sys/nothing"), "cannot be installed into"),
    ],
)
def test_where_it_cannot_be_the_reason_is_said(
    tmp_path: Path, make: Callable[[Path], object], words: str
) -> None:
    make(tmp_path / "hooks")
    with pytest.raises(CannotInstall, match=words):
        install(tmp_path / "hooks")


def test_a_read_only_folder(tmp_path: Path, upgraded: Callable[..., None]) -> None:
    """As root may write to every folder, the file system itself is read-only."""
    upgraded("first")
    install(tmp_path / "hooks")
    upgraded("again")
    script = (
        "mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec {1} -c {2}".format(
            tmp_path / "hooks",
            sys.executable,
            f"'from pathlib import Path; import oncall; oncall.__path__ = {oncall.__path__!r};"
            f'from oncall.native.installed import install; install(Path("{tmp_path}/hooks"))\'',
        )
        .replace("['", '["')
        .replace("']", '"]')
    )
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr}")
    assert f"cannot be installed into {tmp_path}/hooks" in done.stderr
    assert "Read-only file system" in done.stderr
    assert ends(tmp_path / "hooks") == {b"first"}
