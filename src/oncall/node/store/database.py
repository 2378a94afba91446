"""How this package opens DuckDB: bounded, sealed off from the network, and saying what failed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import duckdb

from oncall.evidence import statements

_NESTED = re.compile(r'"exception_message":"((?:[^"\\]|\\.)*)"')  # an error of another thread


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


def quoted(path: Path) -> str:
    """The path inside a SQL string; absolute, as `md:x` alone would name another kind of store."""
    return str(path.absolute()).replace("'", "''")


def reason(error: BaseException) -> str:
    """One line that says what went wrong, without DuckDB's sentences about itself."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).rpartition("Original error: ")[2].strip()
    if nested := _NESTED.search(text):
        text = nested[1].replace('\\"', '"')
    return next(iter(text.splitlines()), type(error).__name__)
