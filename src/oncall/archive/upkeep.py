"""Compaction, retention and verification of an archive, while others add to it and read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import duckdb

from oncall.archive.layout import DATASETS, HOURS, Dataset, Partition, newest, scan
from oncall.archive.store import Archive, Damaged, grouped, name_of


@dataclass(frozen=True)
class Size:
    """How much a dataset holds."""

    dataset: str
    files: int
    partitions: int
    size_bytes: int


def sizes(archive: Archive) -> tuple[Size, ...]:
    """What each dataset holds."""
    return tuple(_size(archive, dataset) for dataset in DATASETS.values())


def _size(archive: Archive, dataset: Dataset) -> Size:
    files = archive.files(dataset)
    partitions = len(grouped(path for path, _ in files))
    return Size(dataset.name, len(files), partitions, sum(size for _, size in files))


def compact(archive: Archive, at_least: int = 2) -> Iterator[tuple[Partition, int]]:
    """Rewrite each partition of that many files as one; yields it and how many they were.

    The new file is there before the old ones go: whoever reads meanwhile counts each incident
    once, and a compaction that is killed loses nothing.
    """
    for dataset in DATASETS.values():
        listed = [path for path, _ in archive.files(dataset)]
        for partition, paths in grouped(listed).items():
            if len(paths) >= at_least and (count := _compacted(archive, dataset, partition, paths)):
                yield partition, count


def _compacted(
    archive: Archive, dataset: Dataset, partition: Partition, paths: Sequence[str]
) -> int:
    """How many files became one; 0: these stay as they are."""
    read: list[str] = []

    def rewrite(con: duckdb.DuckDBPyConnection, addresses: Sequence[str]) -> bool:
        if len(addresses) < 2:
            return False
        select = newest(dataset, scan(dataset, addresses))
        archive.write(con, dataset, partition, name_of(read), select)
        return True

    def files() -> list[str]:
        there = {path for path, _ in archive.files(dataset, partition.folder)}
        # What holds other rows than an archive's is no part of what replaces it.
        odd = [one for path in paths if path in there and (one := archive.checked(path))]
        archive.damaged += odd
        read[:] = [path for path in paths if path in there - {one.path for one in odd}]
        return list(read)

    done = archive.read(rewrite, files)
    for path in read if done else ():
        archive.place.remove(path)
    return len(read) if done else 0


def expire(
    archive: Archive, before: str, hours_before: str, *, dry_run: bool = False
) -> Iterator[tuple[str, int]]:
    """Delete partitions of months before `before` (such as 2026-01), hours before `hours_before`;
    yields each file with its bytes."""
    for dataset in DATASETS.values():
        limit = hours_before if dataset is HOURS else before

        def old(partition: Partition, limit: str = limit) -> bool:
            return partition.month < limit

        for path, size in archive.files(dataset, wanted=old):
            if not dry_run:
                archive.place.remove(path)
            yield path, size


def verify(archive: Archive) -> Iterator[Damaged | None]:
    """Read every value of every file; yields None for a sound file, and what is wrong with others,
    including what a writer that was killed left behind."""
    for dataset in DATASETS.values():
        for path, _ in list(archive.place.listed(dataset.name)):
            if path.endswith(".damaged"):
                continue
            if path.endswith(".part"):
                yield Damaged(path, "half-written: its writer was stopped, or is still writing")
                continue
            yield archive.checked(path, whole=True)
