"""Evidence whose every string was chosen to do harm: to steer a terminal, to be read as markup, to
be run by a shell, to break a line or a file's format.

path = save_hostile(tmp_path / "names.oncall", NAMES)        # names only: everything is still found
path = save_hostile(tmp_path / "all.oncall", PIECES, every_column=True)   # kinds and states as well
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from oncall.core.units import NS_PER_S
from oncall.evidence import window
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall.evidence.table import Column, Table
from oncall_lab.network import NetworkFault, NetworkScenario, simulate_network
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline
from oncall_lab.simulation import simulate
from oncall_lab.traffic import TrafficFault, TrafficScenario, simulate_traffic
from oncall_lab.training.fault import TrainingFault
from oncall_lab.training.scenario import TrainingScenario

MARKUP = ("[/]", "[bold", "[@click=app.quit]x[/]", "{{ x }}", "%s %d", "{0} {x}", "$x ${x}")
STEERING = (
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[31m",
    "\x9b31m\x85\x90",
    "\x00\x08\x7f\x0b\x0c",
    "\r\n\tline",
    "\u2028\u2029",
    "\u202egnp.\u202c",
    "\u2066\u2069\u200e\u200f\u061c",
    "a\u200bb\u2060\ufeff",
    "\ufffe\uffff",
    "\U000e0041\U000e007f",
)
SHELL = ("; rm -rf ~", "$(reboot)", "`reboot`", "'\"\\", "-oProxyCommand=reboot", "../../x", "CON")
DOCUMENT = (
    "<img src=x onerror=a()>",
    "]]>&lt;<!--",
    "![x](http://e.vil)",
    "@everyone",
    "| a |",
    "# h",
    "=cmd()",
    "```",
)
LONG = "x" * 10_000
WIDE = (
    "漢字カナ",
    "👩\u200d👩\u200d👧",
    "e\u0301\u0302\u0303",
    "\u0627\u0644",
    "\U0001f1e9\U0001f1ea",
)
PIECES = (*MARKUP, *STEERING, *SHELL, *DOCUMENT, *WIDE, LONG)
ALL_BUT_LONG = "".join(piece for piece in PIECES if piece is not LONG)

# What must reach no terminal and no document, whatever a name holds: controls but the line feed,
# what reorders or hides text, separators of lines, tags, halves of characters, noncharacters.
UNSAFE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)

# Columns whose values say what a row is: changed, the row is about something else.
_DECIDES = frozenset(
    [
        "kind",
        "op",
        "dtype",
        "algo",
        "proto",
        "state",
        "direction",
        "waits_for",
        "task",
        "source",
        "schedule",
        "role",
        "clock",
        "code",
        "governor",
        "origin",
        "probe",
        "version",
        "device",
    ]
)


def unsafe_in(text: str) -> list[str]:
    """What of a text could do harm, with some of what stands around it."""
    return [
        ascii(text[max(found.start() - 20, 0) : found.end() + 20])
        for found in UNSAFE.finditer(text)
    ]


def save_hostile(path: Path, pieces: Sequence[str], *, every_column: bool = False) -> Path:
    """An incident of four jobs, in which every string begins with one of `pieces`, in turn; the
    same string with the same piece everywhere, so that rows find one another."""
    with Incident.open(_merged()) as incident:
        _spoil(incident, pieces, every_column)
        incident.save(path)
    return path


def jobs_of(path: Path) -> list[str]:
    """The names of its jobs, in the order of what was simulated."""
    with Incident.open(path) as incident:
        found = window.jobs(incident.con)
    return sorted(found, key=lambda job: job[-4:])


@cache
def _merged() -> Path:
    """A saved incident of a job that hangs, a pipeline with a slow stage, a congested network and
    measured traffic. The folder is removed at the end of the process."""
    folder = TemporaryDirectory(prefix="oncall-hostile-")
    atexit.register(folder.cleanup)
    hang = TrainingScenario(job="hang", dp=2, gpus_per_node=4, duration_ns=20 * NS_PER_S,
                    faults=(TrainingFault("H1", (5,), at_ns=12 * NS_PER_S),))  # fmt: skip
    slow = PipelineFault("delay", rank=5, iteration=2, task="backward", micro_batch=1,
                         delay_ns=400_000_000)  # fmt: skip
    pipeline = PipelineScenario(job="pipe", tp=1, micro_batches=4, iterations=4, recorder="tasks",
                                faults=(slow,))  # fmt: skip
    storm = NetworkScenario(job="netw", step_bytes=20_000_000, seed=2,
                            faults=(NetworkFault("INCAST", 1_000_000),))  # fmt: skip
    halved = TrafficFault("congestion", 2, iteration=2, bandwidth=0.5)
    rate = TrafficScenario(job="rate", workload="neighbour_exchange", iterations=6,
                           exchange_bytes=8 * 2**20, faults=(halved,))  # fmt: skip
    into = simulate(hang)[0]
    made = (simulate_pipeline(pipeline), simulate_network(storm), simulate_traffic(rate))
    for number, (incident, _) in enumerate(made):
        path = Path(folder.name, f"{number}.oncall")
        with incident:
            incident.save(path)
        into.con.execute(f"ATTACH '{path}' AS more (READ_ONLY)")
        for table in TABLES:
            into.con.execute(f'INSERT INTO "{table.name}" BY NAME FROM more."{table.name}"')
        into.con.execute("DETACH more")
    merged = Path(folder.name, "merged.oncall")
    with into:
        into.save(merged)
    return merged


def _spoil(incident: Incident, pieces: Sequence[str], every_column: bool) -> None:
    """Replace the strings, and add a row to each table that has none."""
    changed = [
        (table, column)
        for table in TABLES
        for column in table.columns
        if "VARCHAR" in column.type and (every_column or column.name not in _DECIDES)
    ]
    distinct: set[str] = set()
    for table, column in changed:
        value = f'unnest("{column.name}")' if _is_list(column) else f'"{column.name}"'
        rows = incident.con.execute(f'SELECT DISTINCT {value} FROM "{table.name}"').fetchall()
        distinct |= {text for (text,) in rows if text is not None}
    hostile = {
        text: pieces[number % len(pieces)] + text for number, text in enumerate(sorted(distinct))
    }
    incident.con.execute("CREATE TEMP TABLE hostile (_was VARCHAR, _is VARCHAR)")
    incident.con.executemany("INSERT INTO hostile VALUES (?, ?)", list(hostile.items()))
    incident.con.execute("SET VARIABLE hostile = (SELECT map(list(_was), list(_is)) FROM hostile)")
    for table, column in changed:
        name = f'"{column.name}"'
        value = f"(SELECT _is FROM hostile WHERE _was = {name})"
        if _is_list(column):
            value = f"list_transform({name}, lambda one: getvariable('hostile')[one])"
        incident.con.execute(f'UPDATE "{table.name}" SET {name} = {value} WHERE {name} IS NOT NULL')
    for table in TABLES:
        if incident.is_empty(table.name):
            _add_row(incident, table, hostile["hang"], pieces)


def _add_row(incident: Incident, table: Table, job: str, pieces: Sequence[str]) -> None:
    """A row of a table that the simulations leave empty: of that job, all else made up."""
    row: dict[str, object] = {}
    for number, column in enumerate(table.columns):
        if column.name == "job":
            row["job"] = job
        elif "VARCHAR" in column.type:
            piece = pieces[number % len(pieces)] + column.name
            row[column.name] = [[piece]] if _is_list(column) else piece
        elif _is_list(column):
            row[column.name] = [[1]]
        else:
            row[column.name] = column.type == "BOOLEAN" or 1
    incident.append(table.name, row)


def _is_list(column: Column) -> bool:
    return column.type.endswith("[]")
