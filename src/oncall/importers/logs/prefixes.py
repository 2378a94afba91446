"""Peels off what launchers, viewers and loggers put before a program's own words."""

from __future__ import annotations

import re
from collections.abc import Callable

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.line import Line

_MOST_PREFIXES = 10
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|\x1b.?")
# A colour whose escape character was lost on the way.
_LOST_ANSI = re.compile(r"^(?:\[\d{1,2}(?:;\d{1,3})*m)+ ?")
_FOLDED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_HOST = r"[A-Za-z0-9][\w.-]*"
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

_Peel = Callable[[re.Match[str], Line, Clock], None]


def _stamp(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.at_ns = clock.iso(found["stamp"]) or line.at_ns


def _c10(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.level = found["level"]
    if found["day"]:
        line.at_ns = clock.month_day(found["day"], found["time"]) or line.at_ns


def _glog(found: re.Match[str], line: Line, clock: Clock) -> None:
    _c10(found, line, clock)
    line.pid = line.pid or int(found["pid"])


def _syslog(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.at_ns = clock.syslog(found["stamp"]) or line.at_ns
    if "host" in found.re.groupindex:
        line.node = line.node or found["host"]


def _rank(found: re.Match[str], line: Line, _: Clock) -> None:
    line.rank = int(found["rank"])


def _local(found: re.Match[str], line: Line, _: Clock) -> None:
    line.local_rank = int(found["local"])
    host = found["host"]
    line.node = line.node or (host if host and host != "default" else None)


def _task(found: re.Match[str], line: Line, _: Clock) -> None:
    line.task = int(found["task"])


def _host(found: re.Match[str], line: Line, _: Clock) -> None:
    line.node = found["host"]


def _ray(found: re.Match[str], line: Line, _: Clock) -> None:
    line.pid = int(found["pid"])
    line.node = found["ip"] or line.node


def _level(found: re.Match[str], line: Line, _: Clock) -> None:
    line.level = found["level"][0]


def _nccl(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.node, line.pid, line.nccl = found["host"], int(found["pid"]), found["level"]
    line.gpu = int(found["gpu"]) if found["gpu"] else None
    if found["stamp"]:
        line.at_ns = clock.iso(found["stamp"]) or line.at_ns


def _skip(_found: re.Match[str], _line: Line, _clock: Clock) -> None:
    """It says nothing of use."""


_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PREFIXES: tuple[tuple[re.Pattern[str], _Peel], ...] = tuple(
    (re.compile(pattern), peel)
    for pattern, peel in (
        # HOST:PID:TID [DEV] file.cc:LINE NCCL LEVEL, the stamp since 2.26.
        (
            rf" ?(?:\[(?P<stamp>{_DATE})\] )?(?P<host>{_HOST}):(?P<pid>\d+):\d+ "
            r"(?:\[(?P<gpu>\d+)\] )?(?:[\w/.]+\.(?:cc|h|cpp):\d+ )?(?:\(\w+\) )?"
            r"NCCL (?P<level>WARN|INFO|ERROR|TRACE|CALL) ",
            _nccl,
        ),
        (rf"(?P<stamp>{_DATE})(?:Z|[+-]\d\d:?\d\d)?(?= |$|\||:)[ |:]*", _stamp),
        (rf"\[(?P<stamp>{_DATE})[^\]]{{0,30}}\]:? ?", _stamp),
        (r"\[rank ?(?P<rank>\d+)\]: ?", _rank),
        (
            r"\[(?P<level>[IWEF])(?P<day>\d{3,4})? ?(?P<time>\d\d:\d\d:\d\d\.\d+ )?"
            r"(?:\d+ )?[\w./-]+\.(?:cpp|hpp|h|cc|cu|py):\d+\] ?",
            _c10,
        ),
        (
            r"(?P<level>[IWEF])(?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+) +(?P<pid>\d+) "
            r"[^\]\s]{1,200}\] ?",
            _glog,
        ),
        (r"\[(?P<host>default|[\w.-]+:)(?P<local>\d+)\]: ?", _local),
        (r"\[pod/(?P<host>[^/\]]+)[^\]]*\] ?", _host),
        (r"\([\w.:-]+ pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\) ?", _ray),
        (r"\[\d+,(?P<rank>\d+)\]<(?:stderr|stdout|stddiag)>:? ?", _rank),
        (r" {0,4}(?P<task>\d{1,6}): (?=\S)", _task),
        (r"[a-z][\w-]*/(?P<task>\d+) (?:\[\d+\]: ?)?", _task),
        (r"(?P<host>\d+\.\d+\.\d+\.\d+|[A-Za-z][\w.-]*\d[\w.-]*): (?=\S)", _host),
        (r"\[\d{3,9}\] (?=\S)", _skip),
        (rf"(?P<level>{_LEVELS}):[\w.]+: ?", _level),
        (rf"(?:- )?[\w.]+ - (?P<level>{_LEVELS}) - ", _level),
        (rf"\[(?P<level>{_LEVELS})\] ?", _level),
        (r"\[[\w.]+\.py:\d+:[\w<>]+\] ?", _skip),
        (r"torch\.[\w.]+: (?=\[)", _skip),
        (r"\[titan\] ", _skip),
        (
            r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>[\w.-]+) "
            r"(?=[\w./-]+(?:\[\d+\])?: )",
            _syslog,
        ),
        (r"\[(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?", _syslog),
        (r"kernel: ", _skip),
        (r"(?:<\d>|kern +:\w+ +: )", _skip),
        (r"\[ *[+<]? *\d+\.\d{6}>?\] ?", _skip),
    )
)

# All of them at once, to learn which one is there: one group for each.
_ANY = re.compile(
    "|".join(f"({re.sub(r'[(][?]P<[a-z]+>', '(?:', pattern.pattern)})" for pattern, _ in _PREFIXES)
)


def peeled(number: int, raw: str, clock: Clock) -> Line:
    """The line without ANSI colours, folds and prefixes, and what those said."""
    coloured = _LOST_ANSI.sub("", _ANSI.sub("", raw)).replace("\0", "")
    text = coloured if coloured == raw else coloured.lstrip(" ")
    line = Line(number, _FOLDED.sub("", text))
    for _ in range(_MOST_PREFIXES):
        which = _ANY.match(line.text)
        if which is None or which.lastindex is None or not which.end():
            break
        pattern, peel = _PREFIXES[which.lastindex - 1]
        found = pattern.match(line.text)
        assert found is not None  # it is the same pattern
        peel(found, line, clock)
        line.text = line.text[found.end() :]
    return line
