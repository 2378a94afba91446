"""Disks that fill, lose their inodes, become read-only, refuse large files or take their time.

While nothing can be written the collector says so, keeps the newest rows within its bound and
counts the rest; when it can write again it does, by itself. What was sealed before stays.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .collector import wait_until
from .outcome import Outcome, Skipped
from .watched import NOT_WRITING, WRITING_AGAIN, Watched, pause, settle, watched

_HARMED_S = 8.0
_SLOW_MS = 300

Harm = Callable[[Watched], None]


def full(folder: Path) -> Outcome:
    """A neighbour takes all the room there is, and gives it back."""
    with small_disk(folder / "disk", "size=24m") as disk:
        return _harmed(folder, disk, "disk full", lambda _: _fill(disk), lambda _: _empty(disk))


def no_inodes(folder: Path) -> Outcome:
    """The room is there, the inodes are gone."""

    def take(_: Watched) -> None:
        (disk / "files").mkdir()
        with suppress(OSError):
            for number in range(100_000):
                (disk / "files" / str(number)).touch()

    with small_disk(folder / "disk", "size=64m,nr_inodes=200") as disk:
        return _harmed(
            folder, disk, "no inodes left", take, lambda _: shutil.rmtree(disk / "files")
        )


def read_only(folder: Path) -> Outcome:
    """The kernel makes the file system read-only, as after an error of the disk."""

    def remount(how: str) -> Harm:
        # Busy with open files it is only refused; the kernel itself would not ask.
        return lambda _: _mount("-o", f"remount,{how}", str(disk))

    with small_disk(folder / "disk", "size=64m") as disk:
        return _harmed(folder, disk, "read-only file system", remount("ro,force"), remount("rw"))


def no_large_files(folder: Path) -> Outcome:
    """A limit on the size of files, as a quota sets it, comes and goes."""

    def limit(size_bytes: int) -> Harm:
        return lambda one: (
            resource.prlimit(
                one.collector.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY)
            )
            and None
        )

    limited, free = limit(64 * 1024), limit(resource.RLIM_INFINITY)
    return _harmed(folder, None, "limit on file sizes", limited, free)


def slow(folder: Path) -> Outcome:
    """Every fsync takes 0.3 s and every large write 15 ms: it takes longer, and nothing is lost."""
    library = folder / "slow_disk.so"
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skipped("no C compiler")
    source = Path(__file__).with_name("slow_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library, "-ldl"], check=True)
    environment = {"LD_PRELOAD": str(library), "SLOW_DISK_MS": str(_SLOW_MS)}
    with watched(folder / "node", environment=environment) as one:
        one.wait_for_shards(2)
        one.note_committed()
        pause(_HARMED_S)
        one.wait_for_shards(1)
        return settle(one, "slow disk", 1, whole=True)


def _harmed(folder: Path, disk: Path | None, what: str, harm: Harm, mend: Harm) -> Outcome:
    """Harm a collector's disk for some seconds, and mend it."""
    data = disk / "data" if disk else None
    with watched(folder / "node", data, backlog="1 MiB") as one:
        one.wait_for_shards(2)
        one.note_committed()
        harm(one)
        wait_until(lambda: one.says(NOT_WRITING), f"{what}: it says that it cannot write")
        said = len(one.collector.said)
        pause(_HARMED_S)
        one.must(one.collector.exit_code is None, f"{what}: it left")
        mend(one)
        wait_until(lambda: one.says(WRITING_AGAIN, said), f"{what}: it writes again by itself")
        one.wait_for_shards(1)
        return settle(one, what, 1, whole=False)


# ------------------------------------------------------------------------ the disks


@contextmanager
def small_disk(place: Path, options: str) -> Iterator[Path]:
    """A small file system of its own, gone on leaving. Raises Skipped where that is not allowed."""
    place.mkdir()
    if os.geteuid() != 0:
        raise Skipped("mounting a small disk needs root")
    _mount("-t", "tmpfs", "-o", options, "tmpfs", str(place))
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"mount {words[-1]}: {done.stderr.strip()}")


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (65_536, 4096):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def _empty(disk: Path) -> None:
    (disk / "ballast").unlink()
