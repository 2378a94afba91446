"""How this package opens DuckDB: bounded, as its machine belongs to the training job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from oncall.evidence import statements


@dataclass(frozen=True)
class Limits:
    """What a connection may use of its machine, which belongs to the training job."""

    memory_bytes: int = 128 * 2**20
    threads: int = 1


DEFAULT_LIMITS = Limits()


def connect(
    limits: Limits = DEFAULT_LIMITS, spill_to: Path | None = None
) -> duckdb.DuckDBPyConnection:
    """A connection with nothing in it, to attach stores to. Queries too large for `limits` spill to
    the folder `spill_to`, or fail without one."""
    return statements.connect(
        memory_limit=f"{limits.memory_bytes // 2**20}MiB",
        threads=str(limits.threads),
        temp_directory=str(spill_to.absolute()) if spill_to else "",
    )
