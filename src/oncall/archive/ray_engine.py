"""A DuckDB in each worker of a Ray cluster: `oncall[ray]`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from oncall.archive.partial_rows import Rows, Select, computed_here
from oncall.core.errors import UsageError, short_reason

_LOCAL = "local"


@contextmanager
def ray_engine(where: str, workers: int | None) -> Iterator[_Ray]:
    """Connected to the cluster at HOST:PORT, or to one started here for `local`; it is left again
    at the end. Raises UsageError if Ray is not installed or does not answer."""
    try:
        import ray
    except ImportError:
        raise UsageError("--engine ray:// needs Ray: pip install 'oncall[ray]'") from None
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
