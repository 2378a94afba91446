"""Stacks as text: py-spy, faulthandler, gdb's `thread apply all py-bt`, pystack, in any order.

Several processes may be in one file: below headings (`== gpu017`, `rank 12`), behind a prefix a
line (`gpu017: ...`, `[rank12]: ...`), or one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from oncall.importers.bounds import metered
from oncall.importers.stacks import places
from oncall.importers.stacks.dump import MOST_THREADS, Place, Process, Thread, bounded, frame

# py-spy; also `Thread 0x7F3A (active+gil)`, and folded by hand: several headings, one stack.
_PROCESS = re.compile(r"^\s*Process (\d{1,10}):(?: (?P<command>.*)|$)")
_SPY_THREAD = re.compile(
    r"^\s*Thread (?P<id>0x[0-9a-fA-F]+|\d+) \((?P<state>[\w+ ]+)\)(?:: \"(?P<name>[^\"]*)\")?\s*$"
)
_SPY_FRAME = re.compile(r"^\s+(?P<function>\S.*?) \((?P<file>[^():]+)(?::(?P<line>\d+))?\)\s*$")
_SPY_NOISE = re.compile(r"^\s*Python v[\d.]+")
_SPY_VALUES = re.compile(r"^\s+(?:Arguments|Locals):\s*$")
# faulthandler; from Python 3.14 on with the thread's name
_FAULT_THREAD = re.compile(
    r"^\s*(?:Current thread|Thread) (?P<id>0x[0-9a-fA-F]+)(?: \[(?P<name>[^\]]*)\])?"
    r" \(most recent call first\):"
)
_FAULT_FRAME = re.compile(
    r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+|\?\?\?) in (?P<function>\S.*)$'
)
_FAULT_NOISE = re.compile(
    r"^(?:Fatal Python error|Timeout \(\d|Extension modules:|\s+<no Python frame>)"
)
_FAULT_BEGINS = re.compile(r"^(?:Fatal Python error|Timeout \(\d)")
# gdb: threads by number, the main one is 1
_GDB_THREAD = re.compile(
    r"^Thread (?P<number>\d+) \((?:Thread 0x[0-9a-fA-F]+ )?\(?LWP (?P<lwp>\d+)\)?[^)]*\)?:?"
)
_GDB_FRAME = re.compile(
    r'^\s*(?:#\d+ (?:Frame 0x[0-9a-fA-F]+, for file )?)?File "?(?P<file>[^",]+)"?, '
    r"line (?P<line>\d+), in (?P<function>\S+)"
)
_GDB_C_FRAME = re.compile(
    r"^#\d+\s+(?:0x[0-9a-fA-F]+ in )?(?P<function>[\w:~<>?@.]+) ?\(.*?"
    r"(?: from (?P<library>\S+)| at (?P<file>[^:\s]+):(?P<line>\d+))?$"
)
_GDB_NOISE = re.compile(
    r"^(?:\[New LWP|\[Thread debugging|Using host lib|Traceback \(most recent call first\)"
    r"|Unable to locate python frame|\[Inferior|\s+<built-in method|__\w+ \(.*\) at |\d+\s+in |"
    r"\d+\s+\.\./|warning: |0x[0-9a-f]+ in )"
)
# pystack: the newest frame last
_PYSTACK_THREAD = re.compile(
    r"^Traceback for thread (?P<id>\d+) \((?P<name>[^)]*)\) \[(?P<state>[^\]]*)\] "
    r"\(most recent call last\):"
)
_PYSTACK_FRAME = re.compile(
    r'^\s+\((?:Python|C|Other)\) File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S.*?)'
    r"(?: \((?P<library>[^()]+)\))?$"
)
_PREFIXED = re.compile(
    r"^(?:\[rank(?P<rank>\d{1,7})\]|(?P<who>[A-Za-z0-9][\w.-]*)):(?: (?P<rest>.*))?$"
)
_STAMPED = re.compile(r"\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")
_MOST_LINE = 1_000  # characters that are read of a line


@dataclass
class _Open:
    """A thread whose frames are being read."""

    name: str | None = None
    id: str | None = None
    state: str | None = None
    frames: list[str] = field(default_factory=list)
    newest_last: bool = False
    by_gdb: bool = False

    def closed(self) -> Thread:
        frames = reversed(self.frames) if self.newest_last else self.frames
        return Thread(bounded(frames), self.name, self.id, self.state)


class _Reader:
    """Reads the lines of one stream of stacks."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.known = 0  # lines that belong to stacks
        self.logged = 0  # others, stamped as those of a log
        self._place = Place()
        self._process: Process | None = None
        self._thread: _Open | None = None
        self._alike: list[_Open] = []  # headings without frames, which share the next one's
        self._after_rule = False
        self._values: int | None = None  # how far the heading of a frame's variables is indented

    def line(self, text: str) -> None:
        """Read one line."""
        if self._is_value(text):
            self.known += bool(text.strip())
            return
        if self._begins(text) or self._continues(text):
            self.known += 1
            self._after_rule = False
            return
        if not text.strip():
            return
        if text[:1].isspace():
            return
        self.logged += _STAMPED.match(text) is not None
        rule, self._after_rule = self._after_rule, places.is_rule(text)
        found = places.heading(text) or (places.bare_heading(text) if rule else None)
        if found is not None:
            self.close()
            self._place, self._process = found, None
            self.known += 1

    def close(self) -> None:
        """What was read so far is complete."""
        if self._thread is not None:
            self._alike.append(self._thread)
        frames = self._thread.frames if self._thread else []
        for each in self._alike:
            each.frames = each.frames or frames
            self._keep(each)
        self._alike, self._thread = [], None

    # ------------------------------------------------------------------ lines

    def _is_value(self, text: str) -> bool:
        """Whether the line belongs to the variables of a frame, which `--locals` prints."""
        indent = len(text) - len(text.lstrip())
        if self._values is not None and (not text.strip() or indent > self._values):
            return True
        self._values = indent if self._thread and _SPY_VALUES.match(text) else None
        return self._values is not None

    def _begins(self, text: str) -> bool:
        """Whether a process or a thread begins here."""
        if found := _PROCESS.match(text):
            self.close()
            place = places.of_command(int(found[1]), found["command"] or "")
            self._process = Process(place.within(self._place))
            self.processes.append(self._process)
            return True
        if _FAULT_BEGINS.match(text):
            self.close()
            self._process = None
        opened = _thread(text)
        if opened is None:
            return _is_noise(text)
        if self._thread is not None and not self._thread.frames and self._shares(opened):
            self._alike.append(self._thread)
        else:
            self.close()
        self._thread = opened
        return True

    def _shares(self, opened: _Open) -> bool:
        """A process has one main thread: of two in a row, both have the second's frames."""
        assert self._thread is not None
        return opened.name is not None and opened.name == self._thread.name

    def _continues(self, text: str) -> bool:
        if self._thread is None:
            return False
        for pattern in _frames_of(self._thread):
            if found := pattern.match(text):
                parts = found.groupdict()
                file = parts.get("library") or parts.get("file") or "?"
                line = parts.get("line") or ""
                number = int(line) if line.isdigit() and not parts.get("library") else None
                self._thread.frames.append(frame(parts["function"], file, number))
                return True
        # Below a frame, gdb and pystack print its source.
        return (self._thread.by_gdb or self._thread.newest_last) and text[:4].isspace()

    def _keep(self, opened: _Open) -> None:
        thread = opened.closed()
        if not thread.frames:
            return
        process = self._process
        if process is None or (thread.is_main and any(one.is_main for one in process.threads)):
            process = self._process = Process(self._place)
            self.processes.append(process)
        if process.place.pid is None and thread.is_main and _is_process_id(opened):
            process.place = Place(pid=int(opened.id or 0)).within(process.place)
        if len(process.threads) < MOST_THREADS:
            process.threads.append(thread)


def _thread(text: str) -> _Open | None:
    if found := _SPY_THREAD.match(text):
        return _Open(found["name"], found["id"], found["state"])
    if found := _FAULT_THREAD.match(text):
        return _Open(found["name"], found["id"])
    if found := _PYSTACK_THREAD.match(text):
        return _Open(None, found["id"], found["state"] or None, newest_last=True)
    if found := _GDB_THREAD.match(text):
        main = "MainThread" if found["number"] == "1" else f"thread {found['number']}"
        return _Open(main, found["lwp"], by_gdb=True)
    return None


def _frames_of(thread: _Open) -> Sequence[re.Pattern[str]]:
    if thread.by_gdb:
        return (_GDB_FRAME, _GDB_C_FRAME)
    if thread.newest_last:
        return (_PYSTACK_FRAME,)
    return (_SPY_FRAME, _FAULT_FRAME)


def _is_noise(text: str) -> bool:
    return any(noise.match(text) for noise in (_SPY_NOISE, _FAULT_NOISE, _GDB_NOISE))


def _is_process_id(thread: _Open) -> bool:
    """On Linux, a main thread's number is that of its process; py-spy and gdb print it."""
    return thread.id is not None and thread.id.isdigit() and int(thread.id) < 2**31


@dataclass(frozen=True)
class Parsed:
    """The processes of a text, the share of its lines that belong to stacks, and whether others
    are stamped as those of a log."""

    processes: Sequence[Process]
    share: float
    is_log: bool


def parse(text: str) -> Parsed:
    """All processes with stacks in a text."""
    readers: dict[tuple[int | None, str | None], _Reader] = {}
    lines = 0
    for rank, who, line in _unprefixed(text.splitlines()):
        lines += bool(line.strip())
        readers.setdefault((rank, who), _Reader()).line(line)
    processes: list[Process] = []
    for (rank, who), reader in readers.items():
        reader.close()
        around = Place(rank, who if who and not who.isdigit() else None)
        processes += [one.at(around) for one in reader.processes if one.threads]
    known = sum(reader.known for reader in readers.values())
    is_log = any(reader.logged for reader in readers.values())
    return Parsed(processes, known / lines if lines else 0.0, is_log)


def _short(line: str) -> str:
    """A line without the middle of one that is too long: a frame's file stands at its end."""
    half = _MOST_LINE // 2
    return line if len(line) <= _MOST_LINE else line[:half] + line[-half:]


def _unprefixed(lines: Iterable[str]) -> Iterator[tuple[int | None, str | None, str]]:
    """Each line without the prefix that pdsh, srun or torchrun put before it, and what it says."""
    for raw in metered(lines):
        line = _short(raw).rstrip()
        found = _PREFIXED.match(line)
        if found is None:
            yield None, None, line
        else:
            rank = int(found["rank"]) if found["rank"] else None
            yield rank, found["who"], found["rest"] or ""
