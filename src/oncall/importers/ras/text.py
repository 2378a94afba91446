"""The text that `ncclras` prints (NCCL 2.24 and later): a summary, then the outliers by name.

RAS names only the members of small groups, which may be the healthy side: "30 ranks have launched
up to operation 640", then 2 ranks ahead, listed. Whoever is not listed belongs to the group that
is not listed, if there is one such group only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oncall.importers.bounds import metered
from oncall.importers.process_ranks import Process
from oncall.importers.ras.poll import (
    MOST_GPUS,
    MOST_RANKS,
    Communicator,
    Event,
    Member,
    Poll,
    at_ns,
    whole,
)

_SECTIONS = ("NCCL version ", "Job summary", "Communicators...", "Group     Comms")
_TABLE_ROW = re.compile(
    r"\s*(\d{1,18})\s+(\d{1,18})\s+(\d{1,18})\s+[\d-]+\s+(\d{1,18})\s+(\d{1,18})\s+([A-Z]+)\s+\S+\s*$"
)
_BLOCK = re.compile(r"#(\d{1,18})-(\d{1,18}) \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)\b")
_TOPIC = re.compile(r"Communicator ranks have different (\w+)(?: operation counts)?$")
_COUNTED = re.compile(
    r"(\d{1,18}) ranks? ha(?:ve|s) "
    r"(?:launched up to operation (?:\w+ )?(\d{1,18})|(not launched) any)"
)
_COUNTED_ONE = re.compile(
    r"Rank (\d{1,18}) has (?:launched up to operation (?:\w+ )?(\d{1,18})|(not launched) any)"
)
_STATUS = re.compile(r"(\d{1,18}) ranks? ha(?:ve|s) status (\w+)")
_STATUS_ONE = re.compile(r"Rank (\d{1,18}) has status (\w+)")
_ERROR = re.compile(r"(\d{1,18}) ranks? reported ")
_ERROR_ONE = re.compile(r"Rank (\d{1,18}) reported ")
_RANK = re.compile(r"Rank (\d{1,18})\b")
_MISSING = re.compile(r"The missing ranks?: ([\d, ]+)$")
_OWNER = re.compile(
    r"-- GPU (\d{1,18})(?: \(NVML (\d{1,18})\))? managed by process (\d{1,18}) on node (\S.*)"
)
_PROCESS = re.compile(
    r"Process (\d{1,18}) on node (\S+) managing GPUs? ([\d,]*)(?: \(NVML ([\d,]*)\))?"
)
_EVENT = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] ([A-Z_]+): (.*)$")
_STATES = {"UNKNOWN": "nocomm"}
# At the start of a line only: a manual that quotes RAS, indented, is no recording.
_MARK = re.compile(
    r"^(Communicators\.\.\. ?\(|Group +Comms +Nodes +Ranks|RAS Monitor Mode|DEAD\n  \d+ job process"
    r"|#\d+-\d+ \([0-9a-f]{1,16}\) (INCOMPLETE|ERROR|MISMATCH)$"
    r"|\[[-\d: ]{19}\] PEER_[A-Z]+: Process \d+ on node)",
    re.MULTILINE,
)


def looks_like_text(head: str) -> bool:
    """Whether a file starts like (a part of) what ncclras prints."""
    return bool(_MARK.search(head))


def parse_text(text: str) -> list[Poll]:
    """Every poll in `text`, one after another, and the events of monitoring mode."""
    return [_Reader(lines).poll() for lines in _polls(text)]


def _polls(text: str) -> Iterator[list[str]]:
    """Cut where a section comes again, or one that stands before the last one seen."""
    lines: list[str] = []
    reached = -1
    for line in text.splitlines():
        section = next((i for i, name in enumerate(_SECTIONS) if line.startswith(name)), None)
        if section is not None:
            if section <= reached:
                yield lines
                lines = []
            reached = section
        lines.append(line)
    if lines:
        yield lines


@dataclass
class _Group:
    """Ranks that share a value: how many, and who of them is named."""

    value: int | str
    count: int
    named: set[int] = field(default_factory=set)


@dataclass
class _Block:
    """All that is said of one communicator."""

    group: int
    counts: dict[str, list[_Group]] = field(default_factory=dict)
    statuses: list[_Group] = field(default_factory=list)
    errors: _Group = field(default_factory=lambda: _Group("error", 0))
    missing: _Group = field(default_factory=lambda: _Group("unresponsive", 0))
    processes: dict[int, Process] = field(default_factory=dict)


@dataclass
class _Row:
    """A line of the summary: communicators that are alike."""

    comms: int
    size: int
    state: str


class _Reader:
    """Reads one poll line by line; `_now` is the group that listed ranks belong to."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._rows: dict[int, _Row] = {}
        self._blocks: dict[int, _Block] = {}
        self._gone: dict[Process, str] = {}
        self._events: list[Event] = []
        self._notes: dict[str, None] = {}
        self._problems: dict[str, None] = {}
        self._version: str | None = None
        self._gpus = 0
        self._ended = False
        self._block: _Block | None = None
        self._topic = ""
        self._now: _Group | None = None
        self._fate = ""

    def poll(self) -> Poll:
        before = ""
        for raw in metered(self._lines):
            line = raw.strip()
            if self._heading(raw, before):
                pass
            elif self._block is None:
                self._process(line)
            elif not self._group(self._block, line):
                self._listing(self._block, line)
            before = line
        comms = tuple(
            comm for key, block in self._blocks.items() if (comm := self._finish(key, block))
        )
        if self._rows:
            self._gpus = self._gpus or max(row.size for row in self._rows.values())
        someone_missing = bool(self._gone) or any(b.missing.count for b in self._blocks.values())
        placed = any(block.missing.named for block in self._blocks.values())
        if self._version and not self._ended:
            self._problems["an answer of NCCL RAS is cut off"] = None
        return Poll(
            version=self._version,
            communicators=comms,
            events=tuple(self._events),
            ranks=self._gpus if self._gpus <= MOST_RANKS else 0,
            complete=not someone_missing,
            gone=() if placed else tuple(self._gone.items()),
            notes=tuple(self._notes),
            problems=tuple(self._problems),
        )

    # ------------------------------------------------------------- reading

    def _heading(self, raw: str, before: str) -> bool:
        """Lines that stand by themselves: version, totals, the summary, and starts of blocks."""
        if match := _BLOCK.match(raw):
            self._block = self._blocks.setdefault(int(match[3], 16), _Block(int(match[1])))
            self._topic, self._now = "", None
            if match[4] == "INCOMPLETE":
                self._now = self._block.missing
        elif raw.strip() in ("DEAD", "INCOMPLETE", "TIMEOUT", "Errors", "Warnings"):
            self._block = None
            self._ended |= raw.strip() == "Warnings"
            self._fate = {"DEAD": "dead", "INCOMPLETE": "unresponsive"}.get(raw.strip(), "")
        elif match := re.match(r"NCCL version (\S+)", raw):
            self._version = match[1]
        elif before.startswith("(total)") and (numbers := re.findall(r"\d{1,9}", raw)):
            self._gpus = int(numbers[-1])
        elif match := _TABLE_ROW.match(raw):
            state = _STATES.get(match[6], match[6].lower())
            self._rows[int(match[1])] = _Row(int(match[2]), int(match[4]), state)
        elif match := _EVENT.match(raw.strip()):
            self._monitor_event(match)
        else:
            return False
        return True

    def _process(self, line: str) -> None:
        if self._fate:
            self._gone |= dict.fromkeys(_processes(line), self._fate)

    def _monitor_event(self, match: re.Match[str]) -> None:
        for process in _processes(match[3]):
            self._events.append(Event(at_ns(match[1]), match[2], process, match[3]))

    def _group(self, block: _Block, line: str) -> bool:
        """A line that opens a group of ranks, with its value; a group of one names its rank."""
        if match := _TOPIC.match(line):
            self._topic, self._now = match[1], None
            return True
        if match := _COUNTED.match(line) or _COUNTED_ONE.match(line):
            groups = block.counts.setdefault(self._topic, [])
            value: int | str = int(match[2] or 0)
        elif match := _STATUS.match(line) or _STATUS_ONE.match(line):
            groups, value = block.statuses, _STATES.get(match[2], match[2].lower())
        elif _ERROR.match(line):
            self._now = block.errors
            return True
        elif match := re.match(r"Missing communicator data from (\d{1,18}) rank", line):
            block.missing.count = int(match[1])
            return True
        else:
            return False
        one = line.startswith("Rank ")
        self._now = _Group(value, 1 if one else int(match[1]))
        groups.append(self._now)
        if one:
            self._listing(block, line)
        return True

    def _listing(self, block: _Block, line: str) -> None:
        """A line that names ranks of the group at hand."""
        if match := _MISSING.match(line):
            block.missing.named |= {int(n) for n in re.findall(r"\d{1,9}", match[1])}
        elif match := _RANK.match(line):
            rank = int(match[1])
            group = block.errors if _ERROR_ONE.match(line) else self._now
            if group is not None:
                group.named.add(rank)
            if owner := _OWNER.search(line):
                gpu = whole(int(owner[2] or owner[1]), MOST_GPUS)
                block.processes[rank] = Process(owner[4].strip(), whole(int(owner[3])), gpu)

    # ----------------------------------------------------------- concluding

    def _finish(self, comm: int, block: _Block) -> Communicator | None:
        """The communicator with every member that its size implies."""
        row = self._rows.get(block.group)
        size = row.size if row else _counted_size(block)
        if size is not None and not 0 < size <= MOST_RANKS:
            self._problems[f"communicator {comm:#x} cannot have {size} ranks"] = None
            return None
        ranks = range(size) if size is not None else sorted(block.missing.named)
        self._match_gone(block)
        states: dict[int, int | str] = dict.fromkeys(ranks, row.state if row else "running")
        if block.statuses:
            states = dict(self._assign(comm, ranks, block.statuses, set()))
        states |= dict.fromkeys(block.errors.named, "error")
        fate = (
            "dead" if "unresponsive" not in self._gone.values() and self._gone else "unresponsive"
        )
        for rank in block.missing.named:
            states[rank] = self._gone.get(block.processes.get(rank, Process(None, None)), fate)
        silent = {rank for rank, state in states.items() if state == "nocomm"}
        counts: dict[int, int] = {}
        # Since NCCL 2.26 each function is counted apart, and only those that differ are printed:
        # their sum is short by what all ranks have in common, so differences stay true.
        for groups in block.counts.values():
            for rank, value in self._assign(comm, ranks, groups, silent | block.missing.named):
                counts[rank] = counts.get(rank, 0) + int(value)
        sizes = [r.comms for r in self._rows.values() if r.size == size]
        members = tuple(
            Member(
                rank, block.processes.get(rank), whole(counts.get(rank)), _text(states.get(rank))
            )
            for rank in ranks
        )
        return Communicator(comm, size, members, alone=sum(sizes) == 1)

    def _assign(
        self, comm: int, ranks: range | list[int], groups: list[_Group], silent: set[int]
    ) -> Iterator[tuple[int, int | str]]:
        """Each rank with its group's value; the unnamed ones only if one group is unnamed, and they
        are no more than it counts."""
        for group in groups:
            for rank in group.named:
                yield rank, group.value
        unnamed = [group for group in groups if not group.named]
        rest = set(ranks).difference(silent, *(group.named for group in groups))
        if len(unnamed) == 1 and len(rest) <= unnamed[0].count:
            for rank in rest:
                yield rank, unnamed[0].value
        elif rest and unnamed:
            said = ", ".join(f"{group.count} at {group.value}" for group in unnamed)
            self._notes[
                f"communicator {comm:#x}: the text does not name who is where ({said}); "
                "`ncclras -f json` (NCCL 2.28.7) or `ncclras -v` does"
            ] = None

    def _match_gone(self, block: _Block) -> None:
        """One missing rank and one missing process belong together; more are not distinguished."""
        if len(block.missing.named) == 1 == len(self._gone):
            block.processes.setdefault(next(iter(block.missing.named)), next(iter(self._gone)))


def _processes(line: str) -> Iterator[Process]:
    """The process that a line names, once for each of its GPUs."""
    if match := _PROCESS.match(line):
        for gpu in re.findall(r"\d{1,4}", match[4] or match[3]) or [None]:
            yield Process(match[2], whole(int(match[1])), int(gpu) if gpu is not None else None)


def _counted_size(block: _Block) -> int | None:
    """Without the summary: the ranks in the groups printed, if every one is in some group."""
    groups = next(iter(block.counts.values()), block.statuses)
    return sum(group.count for group in groups) + block.missing.count if groups else None


def _text(state: int | str | None) -> str | None:
    return str(state) if state is not None else None
