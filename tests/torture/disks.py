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
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from oncall.node.store.wire import Request

from .collector import Collector, wait_until
from .evidence import Archive, duplicates
from .outcome import Outcome, Skipped
from .preload import preloaded
from .watched import NOT_WRITING, WRITING_AGAIN, Watched, pause, settle, watched

_HARMED_S = 8.0
_SLOW_MS = 300
_IMAGE_BYTES = 64 * 2**20

Harm = Callable[[Watched], None]


def full(folder: Path) -> Outcome:
    """A neighbour takes all the room there is, and gives it back."""
    with small_disk(folder / "disk", "size=24m") as disk:
        return _harmed(folder, disk, "disk full", lambda _: fill(disk), lambda _: empty(disk))


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
    """An error of the disk makes its file system read-only; it is repaired, and work goes on."""
    with _repairable_disk(folder) as disk:
        with watched(folder / "node", disk.place / "data", backlog="1 MiB") as one:
            one.wait_for_shards(2)
            one.note_committed()
            disk.fail()
            wait_until(lambda: one.says(NOT_WRITING), "it says that it cannot write")
            pause(_HARMED_S)
            one.must(one.collector.exit_code is None, "it left")
            one.must(b'"jobs"' in one.node.ask(Request("hello")), "it does not answer")
        disk.repair()
        after = Collector(one.node, "--once")
        wait_until(lambda: after.exit_code is not None, "a collector seals what was left")
        one.must(after.exit_code == 0, f"it ended with {after.exit_code}: {after.said[-300:]}")
        again = Archive(one.node.data, folder / "again")
        again.look()
        lost = int((~np.isin(one.before.keys, again.rows.keys)).sum())
        note = f"{len(one.before):,} operations sealed before, {len(again.rows):,} after"
        return Outcome(
            "read-only file system",
            1,
            lost,
            duplicates(again.rows),
            note=note,
            failures=tuple(one.failures),
        )


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
    environment = preloaded("slow_disk.c", folder) | {"SLOW_DISK_MS": str(_SLOW_MS)}
    with watched(folder / "node", environment=environment) as one:
        one.wait_for_shards(2)
        one.note_committed()
        pause(_HARMED_S)
        one.wait_for_shards(1)
        return settle(one, "slow disk", 1, whole=True)


def _harmed(folder: Path, disk: Path | None, what: str, harm: Harm, mend: Harm) -> Outcome:
    """Harm a collector's disk for some seconds, and mend it."""
    data = disk / "data" if disk else None
    with watched(folder / "node", data, backlog="100 KiB") as one:
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


@dataclass(frozen=True)
class _Repairable:
    """An ext4 of its own in a file, which can be made to find an error."""

    place: Path
    image: Path

    def mount(self) -> None:
        _mount("-o", "loop,errors=remount-ro", str(self.image), str(self.place))

    def fail(self) -> None:
        """The kernel finds an error, as a dying disk makes it."""
        asked = ["findmnt", "-n", "-o", "SOURCE", str(self.place)]
        device = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
        Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("1")

    def repair(self) -> None:
        """As an administrator does: unmounted, checked, mounted."""
        subprocess.run(["umount", str(self.place)], check=True)
        subprocess.run(["e2fsck", "-fy", str(self.image)], capture_output=True, check=False)
        self.mount()


@contextmanager
def _repairable_disk(folder: Path) -> Iterator[_Repairable]:
    """Raises Skipped where it cannot be made."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        raise Skipped("an ext4 that fails needs root and mkfs.ext4")
    disk = _Repairable(folder / "disk", folder / "image")
    disk.place.mkdir()
    with disk.image.open("wb") as image:
        image.truncate(_IMAGE_BYTES)
    subprocess.run(["mkfs.ext4", "-q", str(disk.image)], check=True)
    disk.mount()
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk.place)], check=False)


def _mount(*words: str) -> None:
    done = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise Skipped(f"mount {words[-1]}: {done.stderr.strip()}")


def fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (65_536, 4096):
            with suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass


def empty(disk: Path) -> None:
    (disk / "ballast").unlink()
