"""Network evidence in the schema's own terms: CSV or Parquet files named after their table.

What sFlow, INT, gNMI or a switch's shell export is turned into by a few lines of anybody's script:
`switch_ports.csv` holds rows of the table switch_ports, `links.parquet` of links. Columns are the
schema's; missing ones are unknown, others are reported and ignored. docs/guide/switches.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np

from oncall.core.errors import Unreadable
from oncall.evidence.incident import Incident
from oncall.evidence.schema import BY_NAME
from oncall.importers.recordings import append_recording
from oncall.importers.tables import PARQUET, Database, csv_columns, reason

KIND = "switch_tables"

# Without these a row says nothing.
_NEEDED = {
    "flow_steps": ("src", "dst", "step", "started_ns"),
    "flows": ("flow",),
    "links": ("a", "a_port", "b", "b_port"),
    "ranks": ("rank", "node"),
    "switch_flows": ("switch", "port", "at_ns", "flow", "packets"),
    "switch_meters": ("switch", "from_port", "to_port", "at_ns", "bytes"),
    "switch_pauses": ("switch", "port", "at_ns", "paused"),
    "switch_ports": ("switch", "port", "at_ns"),
}


def recognises(path: Path, head: bytes) -> bool:
    """Whether the name says which table it holds, and the content that it can hold it."""
    table = _table_of(path)
    if table is None:
        return False
    if head.startswith(PARQUET):
        return True
    # One column in common tells a table that lacks others from a file that is something else.
    return len(csv_columns(head) & set(BY_NAME[table].column_names)) >= 2


def _table_of(path: Path) -> str | None:
    """`switch_ports-leaf3.2.csv` is of switch_ports."""
    name = re.match(r"[a-z]+(?:_[a-z]+)*", path.name)
    return name[0] if name and name[0] in _NEEDED else None


def read(paths: Sequence[Path], incident: Incident, job: str) -> None:
    """Add the rows of all files to the tables they are named after.

    A file that cannot be read, or lacks a column that its table needs, becomes a recording with
    its problem; rows without a value there are counted and left out.
    """
    for path in sorted(paths):
        table = _table_of(path)
        if table is None:
            continue
        with Database() as db:
            rows, problem, note = _read_table(db, incident, job, path, table)
        append_recording(incident, job, KIND, path, rows, problem, [note])


def _read_table(
    db: Database, incident: Incident, job: str, path: Path, table: str
) -> tuple[int, str | None, str | None]:
    """Rows taken, what was wrong, and what was left out."""
    try:
        cut = db.load("loaded", path)
        with db.deadline(path):
            return _take(db, incident, job, table, cut)
    except Unreadable as error:
        return 0, str(error), None
    except duckdb.Error as error:
        return 0, reason(error), None


def _take(
    db: Database, incident: Incident, job: str, table: str, cut: str | None
) -> tuple[int, str | None, str | None]:
    """Put the rows of `loaded` into the incident, those that have all they need."""
    present = [row[0] for row in db.con.execute("DESCRIBE loaded").fetchall()]
    lacking = [name for name in _NEEDED[table] if name not in present]
    if lacking:
        return 0, f"{table} needs the column {', '.join(lacking)}", None
    declared = {column.name: column.type for column in BY_NAME[table].columns}
    taken = [name for name in present if name in declared]
    types = declared | {"comm": "VARCHAR"}
    select = ", ".join(f'try_cast("{name}" AS {types[name]}) AS {name}' for name in taken)
    whole = " AND ".join(f"{name} IS NOT NULL" for name in _NEEDED[table])
    columns = db.columns(f"FROM (SELECT {select} FROM loaded) WHERE {whole}")
    if "comm" in columns:
        texts = np.ma.getdata(columns["comm"]).tolist()
        columns["comm"] = [_communicator(text) for text in texts]
    if "job" in declared:
        columns["job"] = job
    if table == "flow_steps":  # a recording of one collective need not number it
        columns = {"comm": 0, "seq": 0} | columns
    rows = incident.append(table, columns)
    ((loaded,),) = db.con.execute("SELECT count(*) FROM loaded").fetchall()
    lost = f"{loaded - rows:,} of {loaded:,} rows lack a value they need" if loaded > rows else None
    bad = "; ".join(filter(None, (cut, lost))) or None
    strange = [name for name in present if name not in declared]
    note = f"columns of {table} not known: {', '.join(strange[:4])}" if strange else None
    return rows, bad, note


def _communicator(text: str | None) -> int | None:
    """A number, decimal or hexadecimal, or one that stands for a name."""
    if text is None:
        return None
    with suppress(ValueError):
        number = int(text, 16 if text[:2].lower() == "0x" else 10)
        if 0 <= number < 1 << 64:
            return number
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
