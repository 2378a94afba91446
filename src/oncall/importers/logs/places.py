"""What a line leaves out and the logs together say: its rank, host, GPU and attempt."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncall.importers.one_job import Identity

STEP_TABLE = "logged_steps"
_MAY_BE_STUCK = ("stuck", "clique")
_GOES_ON = 3  # answers after an error: the server outlived it


@dataclass
class LogFile:
    """One log, and what was found in it."""

    path: Path
    attempt: int
    rank: int | None
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    count: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    kept: int = 0
    dated: int = 0  # events that were dated by the lines around them
    problem: str | None = None
    written_ns: int | None = None
    note: str | None = None
    numbered: bool = False  # its name says which attempt it is of
    world: int = 0
    stamps_ns: list[int] = field(default_factory=list)  # the first and last of its text
    local_ranks: set[int] = field(default_factory=set)  # that its lines are of, as torchrun says
    before_tests: dict[str, int] | None = None  # rows of each table when a test session began

    @property
    def begins(self) -> bool:
        """Whether the last that was kept is that a start begins: its agent says so twice."""
        events = self.rows["log_events"]
        return bool(events) and events[-1]["kind"] == "attempt"

    def test_session(self) -> None:
        """A session of tests begins."""
        self.before_tests = {table: len(rows) for table, rows in self.rows.items()}

    def tests_passed(self) -> None:
        """What tests print that all pass, they provoked: it says nothing of a fault."""
        for table, rows in self.rows.items() if self.before_tests is not None else ():
            del rows[(self.before_tests or {}).get(table, 0) :]
        self.before_tests = None

    def went_on(self) -> None:
        """A thread that was said to be stuck is not: the warning is taken back."""
        events = self.rows["log_events"]
        warned = (
            n for n in range(len(events) - 1, -1, -1) if events[n].get("code") in _MAY_BE_STUCK
        )
        if (last := next(warned, None)) is not None:
            del events[last]

    def forget_one_of_many(self, kind: str) -> None:
        """Of events in a row that say that a server answers, as many as show that it goes on."""
        events = self.rows["log_events"]
        if all(row["kind"] == kind for row in events[-_GOES_ON:]) and len(events) >= _GOES_ON:
            self.count["log_events", kind, None, None, events.pop()["node"]] -= 1
            self.kept -= 1


# Which host, rank or attempt a log is of, by its file's name.


# of torchrun's --log-dir: the attempt, then the local rank
ELASTIC = re.compile(r"attempt_(\d+)/(\d+)/(?:stdout|stderr)\.log$")
_NUMBERED = re.compile(
    r"(?:^|[-_.])((?:node|host|gpu|worker|cn|gn|ip)-?\d[\w-]{0,255}?)(?=[_.]|$)", re.IGNORECASE
)
_ENDINGS = re.compile(
    r"(?:\.(?:log|out|err|txt|stdout|stderr|gz|zst|xz|bz2|\d{1,3})){1,9}$", re.IGNORECASE
)
_BREAK = re.compile(r"[_.]")
_DIGITS = re.compile(r"\d+")
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:global)?rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_PROCESS_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?:process|proc|task)[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE
)


def ranks_of(paths: Sequence[Path]) -> dict[Path, int]:
    """The rank that each file is called after: `rank3`, or `process_3` where there is one for each
    number from 0 on."""
    ranks = {path: int(found[1]) for path in paths if (found := _RANK_IN_NAME.search(path.name))}
    numbers = {
        path: int(found[1]) for path in paths if (found := _PROCESS_IN_NAME.search(path.name))
    }
    all_there = len(paths) > 1 and sorted(numbers.values()) == list(range(len(paths)))
    return ranks or (numbers if all_there else {})


def host_of(path: Path, named: Set[str]) -> str | None:
    """The host that a file is called after, if it is. `named` are hosts that lines name: a part of
    the name that differs from one of them in numbers alone is another of them. Else the name says
    so itself: `node07`; where hosts begin as it does, that beginning belongs to it."""
    stem = _ENDINGS.sub("", path.name)
    parts = _BREAK.split(stem)
    forms = {_form(one) for name in named for one in (name, name.partition(".")[0])}
    forms.discard("0")  # of an address: any number would be another
    for part in (stem, *sorted(parts, key=len, reverse=True)):
        if part in named or (_DIGITS.search(part) and _form(part) in forms):
            return part
    found = _NUMBERED.search(stem)
    if found is None:
        return next((part for part in parts if _begins_alike(part, named)), None)
    whole = next((part for part in parts if part.endswith(found[1])), found[1])
    beginning = whole[: -len(found[1])]
    return whole if beginning and any(name.startswith(beginning) for name in named) else found[1]


def _begins_alike(part: str, named: Set[str]) -> bool:
    beginning, hyphen, rest = part.partition("-")
    return bool(hyphen and _DIGITS.search(rest)) and any(
        name.startswith(beginning + hyphen) for name in named
    )


def _form(name: str) -> str:
    return _DIGITS.sub("0", name)


_OF_HOSTS = {"net", "nccl_init", "nccl_version", "version", "ib", "port", "nvls", "sharp", "init"}
_APART_NS = 3600 * 10**9  # longer than any watchdog's timeout: ranks of one failure log within it
_LATER = "begins an hour or more after the logs before it end: taken as another attempt"
_MOST_RANKS = 1_000_000


def rank_by_folder(logs: Sequence[LogFile]) -> None:
    """torchrun's --log-dir has a folder for each local rank. On one node these are the global
    ranks, unless a line names another."""
    folders = [(log, found) for log in logs if (found := ELASTIC.search(log.path.as_posix()))]
    rows = [
        (row, int(found[2])) for log, found in folders for each in log.rows.values() for row in each
    ]
    agents = {log.path.as_posix()[: found.start()] for log, found in folders}
    alone = len(agents) == 1 and all(row.get("rank") in (None, local) for row, local in rows)
    for log, found in folders if alone else ():
        log.rank = int(found[2])
    for row, local in rows if alone else ():
        row["rank"] = local


def rank_by_prefix(logs: Sequence[LogFile]) -> None:
    """torchrun's --tee puts the local rank before each line. Where one agent's processes all write,
    these are the global ranks, unless a line names another; and each that writes is a rank."""
    written = [log for log in logs if log.local_ranks]
    if len(written) != 1:
        return
    (log,) = written
    rows = [row for each in log.rows.values() for row in each]
    ranks = range(len(log.local_ranks))
    if len(ranks) < 2 or log.local_ranks != set(ranks):
        return
    known = [row for row in rows if row.get("rank") is not None]
    agree = all(row.get("local_rank") in (None, row["rank"]) for row in known)
    if not agree or log.world > len(ranks) or any(row["rank"] not in ranks for row in known):
        return
    for row in rows:
        if row.get("rank") is None and row.get("kind") != "exit" and "local_rank" in row:
            row["rank"] = row["local_rank"]
    attempt = min((row["attempt"] for row in rows), default=log.attempt)
    about = {"kind": "process", "code": "torchrun", "attempt": attempt}
    log.rows["log_events"] += [
        about
        | {"rank": rank, "local_rank": rank}
        | dict.fromkeys(("line", "at_ns", "sort_ns", "node", "pid", "text"))
        for rank in ranks
    ]


def rank_by_task(logs: Sequence[LogFile]) -> None:
    """`srun -l` puts the task's number before each line. Tasks are ranks where no line of a task
    names another rank as its own, and none is of an agent, whose task has processes of its own."""
    rows = [row for log in logs for each in log.rows.values() for row in each]
    tasks = {row["task"] for row in rows if row.get("task") is not None}
    world = max((log.world for log in logs), default=0)
    if len(tasks) < 2 or (world and max(tasks) >= world):
        return
    own = [row for row in rows if row.get("kind") != "desync"]  # which name those that are absent
    differ = any(
        None not in (row.get("task"), row.get("rank")) and row["task"] != row["rank"] for row in own
    )
    if differ or any(map(_of_agent, rows)):
        return
    for row in rows:
        # What NCCL prints of the network is its host's.
        if row.get("rank") is None and row.get("kind") not in _OF_HOSTS:
            row["rank"] = row.get("task")


def _of_agent(row: dict[str, Any]) -> bool:
    return row.get("kind") in ("exit", "process", "attempt") and row.get("local_rank") is not None


def name_hosts(logs: Sequence[LogFile]) -> None:
    """Lines that name no host are of the one that their file is called after."""
    rows = [row for log in logs for each in log.rows.values() for row in each]
    named = {row[name] for row in rows for name in ("node", "peer_host") if row.get(name)}
    for log in logs:
        host = host_of(log.path, named)
        for table, each in log.rows.items():
            for row in each if host and table != STEP_TABLE else ():
                if row.get("kind") != "desync":  # which is of another rank
                    row["node"] = row.get("node") or host


def identity_of(log: LogFile) -> Identity:
    """What a log says of its job. Its own hosts say nothing: another log may be another host's. A
    log without a time is of whatever job the others are of."""
    rows = [row for each in log.rows.values() for row in each]
    times = [*log.stamps_ns, *(row["at_ns"] for row in rows if row["at_ns"])]
    if not times:
        return Identity("log")
    homes = {
        (rank, node)
        for row in rows
        if (rank := row.get("rank")) is not None and (node := row.get("node"))
    }
    world = world_size([log], log.rows["log_events"])
    return Identity("log", world, frozenset(), frozenset(homes), min(times), max(times))


def tell_apart(logs: Sequence[LogFile]) -> None:
    """Logs of other times are of other starts, or of other jobs: what failed in one does not follow
    from the others. Names that count attempts have said it already."""
    spans = []
    for log in logs:
        times = [row["at_ns"] for each in log.rows.values() for row in each if row["at_ns"]]
        if times:
            spans.append((min(times), max(times), log))
    if any(log.numbered for log in logs):
        return
    spans.sort(key=lambda span: span[:2])
    earlier, last_ns, highest = 0, None, 0  # attempts before this group of logs, and in it
    for first_ns, end_ns, log in spans:
        if last_ns is not None and first_ns - last_ns > _APART_NS:
            earlier = highest
        last_ns = max(last_ns or 0, end_ns)
        for row in (row for each in log.rows.values() for row in each) if earlier else ():
            row["attempt"] += earlier
        log.note = _LATER if earlier else None
        highest = max(highest, log.attempt + earlier)


def world_size(logs: Sequence[LogFile], events: Sequence[dict[str, Any]]) -> int | None:
    """The job's ranks as lines state them, else as its communicators span them."""
    stated = [
        *(log.world for log in logs),
        *(
            row["number"]
            for row in events
            if (row["kind"] == "world" and row.get("code") != "least")
            or row.get("code") in ("clients", "barrier")
        ),
    ]
    worlds = [size for size in stated if 1 < size <= _MOST_RANKS]
    return max(worlds, default=None) or _spanning(events)


def _spanning(events: Iterable[dict[str, Any]]) -> int | None:
    """The size of the largest communicator, unless more processes are seen than it has ranks."""
    inits = [
        row for row in events if row["kind"] == "nccl_init" and row.get("comm_rank") is not None
    ]
    processes = {(row.get("node"), row.get("pid"), row.get("local_rank")) for row in inits}
    size = max((row["number"] for row in inits), default=0)
    return size if 1 < size <= _MOST_RANKS and len(processes) <= size else None


def places_of(
    events: Sequence[dict[str, Any]], reports: Iterable[dict[str, Any]], world: int | None
) -> dict[int, dict[str, Any]]:
    """Each rank's host, GPU and process. In a communicator of the whole job, ranks are global."""
    places: dict[int, dict[str, Any]] = defaultdict(dict)
    by_process: dict[tuple[Any, Any, Any], int] = {}
    for row in events:
        rank = row.get("rank")
        if (
            row["kind"] == "nccl_init"
            and row.get("number") == world
            and row.get("comm_rank") is not None
        ):
            rank = row["comm_rank"]
            row["rank"] = rank
            places[rank].update(pci_bus=row.get("device"))
            by_process[row.get("node"), row.get("pid"), row.get("local_rank")] = rank
        if rank is not None and row["kind"] == "process":
            places[rank].setdefault("local_rank", row["local_rank"])
            if row.get("pid"):
                by_process[row.get("node"), row["pid"], None] = rank
        if rank is not None and row.get("node"):
            places[rank].setdefault("node", row["node"])
            if row.get("pid") and row["kind"] in ("nccl_init", "exit"):
                places[rank].setdefault("pid", row["pid"])
            if row.get("local_rank") is not None and row["kind"] == "exit":
                places[rank].setdefault("local_rank", row["local_rank"])
    for row in events:
        process = (row.get("node"), row.get("pid"), row.get("local_rank"))
        if row.get("rank") is None and process in by_process and row["kind"] != "nccl_init":
            row["rank"] = by_process[process]
    for row in reports:
        if row.get("rank") is not None and row.get("node"):
            places[row["rank"]].setdefault("node", row["node"])
    return dict(sorted(places.items()))
