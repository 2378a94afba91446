"""The least work that reads an input, each in a process of its own: see limits.py.

    python benchmarks/least.py KIND PATH

Prints the CPU and wall seconds without those of starting; `rules` is oncall's own work over an
incident in memory, for which nothing else is started.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

Work = Callable[[], object]
NEEDED = np.__version__, duckdb.__version__  # by every diagnosis, so both are imported


def unpickled(place: Path) -> Work:
    """Every dump, by the C unpickler."""
    return lambda: [pickle.loads(path.read_bytes()) and None for path in sorted(place.iterdir())]


def parsed(place: Path) -> Work:
    """Every trace, by the C parser of the standard library."""
    return lambda: [json.loads(path.read_bytes()) and None for path in sorted(place.iterdir())]


def split_lines(place: Path) -> Work:
    """Every line of every log, split from the next."""
    return lambda: [len(path.read_bytes().splitlines()) for path in sorted(place.iterdir())]


def passed_over(place: Path) -> Work:
    """Every column of every table of a saved incident, once."""

    def work() -> None:
        with duckdb.connect(str(place), read_only=True) as con:
            for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
                con.execute(f"SELECT bit_xor(hash(COLUMNS(*))) FROM {table}").fetchall()

    return work


def rules(place: Path) -> Work:
    """The shipped rulebooks over an incident in memory, not for the first time in the process."""
    from oncall.evidence import Incident
    from oncall.rules.engine.engine import run
    from oncall.rules.language.load import load_rulebooks, shipped_folder

    books = load_rulebooks([shipped_folder()])
    with Incident.open(place) as first:
        run(first, books)
    incident = Incident.open(place)
    return lambda: run(incident, books)


KINDS = {one.__name__: one for one in (unpickled, parsed, split_lines, passed_over, rules)}


def cpu_s() -> float:
    return sum(os.times()[:4])


if __name__ == "__main__":
    work = KINDS[sys.argv[1]](Path(sys.argv[2]))
    used_s, began_s = cpu_s(), time.perf_counter()
    work()
    print(cpu_s() - used_s, time.perf_counter() - began_s)
