"""Who computes: DuckDB in this process, or one in each worker of a Ray cluster.

    None, "local"         this process, all its cores
    ray://HOST:10001      a Ray cluster; its workers must see the archive under the same path
    ray://local           a Ray started here, for the cores of this machine
    ray://local?workers=4 the same, with that many workers

Each worker computes partial rows of whole partitions; they are merged here.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import duckdb

from oncall.archive.layout import Dataset, Partition
from oncall.archive.place import Rows, Select, computed_here
from oncall.archive.store import Archive, grouped
from oncall.core.errors import UsageError, short_reason


class Engine(Protocol):
    """Computes a SELECT of the files of whole partitions, in one part or in several."""

    def computed(self, select: Select, groups: Sequence[Sequence[str]]) -> Rows:
        """The rows of all groups. Raises duckdb.Error if a file cannot be read."""

    @property
    def workers(self) -> int:
        """Into how many groups of about the same size the partitions are put."""


class Embedded:
    """DuckDB in this process."""

    workers = 1

    def computed(self, select: Select, groups: Sequence[Sequence[str]]) -> Rows:
        return [row for files in groups for row in computed_here(select(files), files)]


def engine_at(where: str | None) -> AbstractContextManager[Engine]:
    """The engine that `--engine` names. Raises UsageError."""
    if where in (None, "", "local"):
        return nullcontext(Embedded())
    url = urlsplit(str(where))
    if url.scheme != "ray" or not url.netloc:
        raise UsageError(f"--engine {where}: expected local, ray://local or ray://HOST:PORT")
    from oncall.archive.engine import ray_engine

    workers = parse_qs(url.query).get("workers", [""])[0]
    if workers and not (workers.isdecimal() and 0 < int(workers) <= 10_000):
        raise UsageError(f"--engine {where}: workers={workers} is not a number of workers")
    return ray_engine(url.netloc, int(workers) if workers else None)


def rows_by(
    engine: Engine,
    archive: Archive,
    dataset: Dataset,
    select: Select,
    wanted: Callable[[Partition], bool] = lambda _: True,
) -> Rows:
    """The partial rows of the partitions that are wanted; damaged files are left out."""

    def ask(_: duckdb.DuckDBPyConnection, addresses: Sequence[str]) -> Rows:
        by_address = dict(zip(addresses, found, strict=True))
        return engine.computed(select, _groups(by_address, engine.workers)) if addresses else []

    found: list[tuple[str, int]] = []

    def files() -> list[str]:
        found[:] = archive.files(dataset, wanted=wanted)
        return [path for path, _ in found]

    return archive.read(ask, files)


def _groups(files: dict[str, tuple[str, int]], count: int) -> list[list[str]]:
    """The files in that many groups of about the same bytes; a partition is never divided."""
    address = {path: where for where, (path, _) in files.items()}
    size = dict(files.values())
    parts = [
        (sum(size[path] for path in paths), [address[path] for path in paths])
        for paths in grouped(address).values()
    ]
    groups: list[tuple[int, int, list[str]]] = [(0, number, []) for number in range(count)]
    for part_bytes, paths in sorted(parts, reverse=True):
        held, number, group = heapq.heappop(groups)
        heapq.heappush(groups, (held + part_bytes, number, group + paths))
    return [group for _, _, group in groups if group]


_LOCAL = "local"


@contextmanager
def ray_engine(where: str, workers: int | None) -> Iterator[_Ray]:
    """Connected to the cluster at HOST:PORT, or to one started here for `local`; it is left again
    at the end. Raises UsageError if Ray is not installed or does not answer."""
    try:
        import ray
    except ImportError:
        raise UsageError("--engine ray:// needs Ray: pip install 'oncall-console[ray]'") from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        if where == _LOCAL:
            ray.init(num_cpus=workers, include_dashboard=False, configure_logging=False, **quiet)
        else:
            ray.init(f"ray://{where}", **quiet)
    except Exception as error:
        raise UsageError(f"--engine ray://{where}: {short_reason(error)}") from error
    try:
        cores = ray.cluster_resources().get("CPU", 1)  # type: ignore[no-untyped-call, unused-ignore]
        yield _Ray(ray, workers or max(1, int(cores)))
    finally:
        ray.shutdown()


class _Ray:
    """Groups of partitions as tasks of Ray."""

    def __init__(self, ray: Any, workers: int) -> None:
        self._ray = ray
        self.workers = workers
        self._task = ray.remote(_partial)

    def computed(self, select: Select, groups: Sequence[Sequence[str]]) -> Rows:
        answers = self._ray.get([self._task.remote(select(files), files) for files in groups])
        for _, problem in answers:
            if problem:
                raise duckdb.IOException(problem)
        return [row for rows, _ in answers for row in rows]


def _partial(sql: str, files: Sequence[str]) -> tuple[Rows, str]:
    """One group's rows; or what is wrong, as errors of DuckDB do not travel."""
    try:
        return computed_here(sql, files, threads=1), ""  # a task has one core
    except (duckdb.Error, OSError) as error:
        return [], short_reason(error)
