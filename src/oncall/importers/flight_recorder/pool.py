"""Reading many dumps on all cores, few in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from oncall.core.errors import BadInput
from oncall.importers.flight_recorder.batch import Batch, read_batch

_FEW_FILES = 256  # for one process: to start it costs as much as reading 120
_FILES_A_BATCH = 256  # some 100,000 operations: the database prefers large helpings


def read_batches(paths: Sequence[str]) -> Iterator[Batch]:
    """Batches that cover all files, in their order. Raises BadInput if a reading process dies."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    workers = min(cores or 1, len(paths) // _FEW_FILES)
    if workers < 2:
        yield read_batch(paths)
        return
    shares = [paths[i : i + _FILES_A_BATCH] for i in range(0, len(paths), _FILES_A_BATCH)]
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    # Spawned, not forked: a database with threads lives in this process.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            yield from pool.map(read_batch, shares)
    except BrokenProcessPool as error:
        raise BadInput(paths[0], "a process that read dumps was killed: out of memory?") from error
