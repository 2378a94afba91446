"""Peels off what launchers, viewers and loggers put before a program's own words."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.json_lines import message_of
from oncall.importers.logs.line import Line

_MOST_PREFIXES = 10
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]{0,200}\x07|\x1b.?")
# A colour whose escape character was lost on the way.
_LOST_ANSI = re.compile(r"^(?:\[\d{1,2}(?:;\d{1,3})*m)+ ?")
_FOLDED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")
_QUOTED = re.compile(r"^(?:(?:>|&gt;) ?)+")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_HOST = r"[A-Za-z0-9][\w.-]*"
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

_Peel = Callable[[re.Match[str], Line, Clock], None]


def _stamp(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.at_ns = clock.iso(found["stamp"]) or line.at_ns


def _epoch(found: re.Match[str], line: Line, _: Clock) -> None:
    digits = found["whole"] + (found["part"] or "")
    line.at_ns = int(digits.ljust(19, "0")[:19])


def _numbers(found: re.Match[str], line: Line, clock: Clock) -> None:
    """Month first between slashes, unless that is no month; day first between dots."""
    first, second = int(found["first"]), int(found["second"])
    month_first = found["between"] == "/" and first <= 12
    month, day = (first, second) if month_first else (second, first)
    stamp = f"{found['year']}-{month:02}-{day:02} {found['time']}"
    line.at_ns = clock.iso(stamp) or line.at_ns


def _logged_by(found: re.Match[str], line: Line, clock: Clock) -> None:
    _stamp(found, line, clock)
    line.node = line.node or found["host"]


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
    if "world" in found.re.groupindex:
        line.world = int(found["world"])


def _server(found: re.Match[str], line: Line, clock: Clock) -> None:
    _stamp(found, line, clock)
    _rank(found, line, clock)


def _local(found: re.Match[str], line: Line, _: Clock) -> None:
    line.local_rank = int(found["local"])
    if "host" in found.re.groupindex:
        line.node = line.node or found["host"]


def _task(found: re.Match[str], line: Line, _: Clock) -> None:
    line.task = int(found["task"])


def _host(found: re.Match[str], line: Line, _: Clock) -> None:
    line.node = found["host"]


def _process(found: re.Match[str], line: Line, _: Clock) -> None:
    line.pid = int(found["pid"])
    line.node = found["ip"] or line.node
    line.rank = int(found["rank"]) if found["rank"] else line.rank


def _host_process(found: re.Match[str], line: Line, _: Clock) -> None:
    line.node, line.pid = found["host"], int(found["pid"])


def _rank_of_host(found: re.Match[str], line: Line, _: Clock) -> None:
    line.node, line.rank = found["host"], int(found["rank"])


def _level(found: re.Match[str], line: Line, _: Clock) -> None:
    line.level = found["level"][0]


def _vllm(found: re.Match[str], line: Line, clock: Clock) -> None:
    _level(found, line, clock)
    line.at_ns = clock.month_day(found["month"] + found["day"], found["time"]) or line.at_ns


def _nccl(found: re.Match[str], line: Line, clock: Clock) -> None:
    line.node, line.pid, line.nccl = found["host"], int(found["pid"]), found["level"]
    line.gpu = int(found["gpu"]) if found["gpu"] else None
    if found["stamp"]:
        line.at_ns = clock.iso(found["stamp"]) or line.at_ns


def _skip(_found: re.Match[str], _line: Line, _clock: Clock) -> None:
    """It says nothing of use."""


_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_PREFIXES: tuple[tuple[re.Pattern[str], _Peel], ...] = tuple(
    (re.compile(pattern), peel)
    for pattern, peel in (
        # HOST:PID:TID [DEV] file.cc:LINE NCCL LEVEL, the stamp since 2.26.
        (
            rf" ?(?:\[(?P<stamp>{_DATE})\] )?(?P<host>{_HOST}):(?P<pid>\d+):\d+ "
            r"(?:\[(?P<gpu>\d+)\] )?(?:[\w/.-]+\.\w+:\d+ )?(?:\(\w+\) )?"
            r"NCCL (?P<level>WARN|INFO|ERROR|TRACE|CALL) ",
            _nccl,
        ),
        # rsyslog and `journalctl -o short-iso`, then as RFC 5424 and `-o short-full` have it.
        (
            rf"(?P<stamp>{_DATE}(?:Z|[+-]\d\d:?\d\d)) (?P<host>{_HOST}) "
            r"(?:[\w./@-]+\[\d+\]: |(?=kernel: ))",
            _logged_by,
        ),
        (
            rf"<\d{{1,3}}>1 (?P<stamp>{_DATE}(?:Z|[+-]\d\d:\d\d)) (?P<host>{_HOST}) "
            r"\S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) (?:\ufeff|BOM)?",
            _logged_by,
        ),
        (
            rf"[A-Z][a-z]{{2}} (?P<stamp>{_DATE})(?: [A-Z]{{3,4}})? (?P<host>{_HOST}) "
            r"(?:[\w./@-]+\[\d+\]: |(?=kernel: ))",
            _logged_by,
        ),
        (rf"(?P<stamp>{_DATE}(?:Z|[+-]\d\d:?\d\d)?)(?= |$|\||:)[ |:]*", _stamp),
        (
            r"\[?(?P<first>\d{1,2})(?P<between>[/.])(?P<second>\d{1,2})[/.]"
            rf"(?P<year>20\d\d),? (?P<time>{_TIME})\]?(?= |$|\||:)[ |:]*",
            _numbers,
        ),
        (
            r"(?=\[|\d{10}\.|\d{13}\b)\[?(?P<whole>1[4-9]\d{8}(?:\d{3})?)"
            r"(?:\.(?P<part>\d{1,9}))?\]?(?:: | +)(?=\S)",
            _epoch,
        ),
        # `grep` over several files.
        (r"[\w./-]{1,200}\.(?:log|out|err|txt)(?:\.\d+)?:(?:\d{1,9}:)?(?=\S)", _skip),
        # SGLang's and vLLM's servers: of one replica and stage, the tensor rank is the rank.
        (
            rf" ?\[(?P<stamp>{_DATE}) (?:DP0 )?TP(?P<rank>\d{{1,4}})(?: EP\d+)?(?: PP0)?\]:? ?",
            _server,
        ),
        (
            r"\((?:Vllm)?Worker[_ ](?:DP0[_ ])?(?:PP0[_ ])?TP(?P<rank>\d{1,4})(?:[_ ]EP\d+)? "
            r"pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\) ?",
            _process,
        ),
        (rf" ?\[(?P<stamp>{_DATE})[^\]]{{0,30}}\]:? ?", _stamp),
        (r"\[rank[:=]? ?(?P<rank>\d{1,9})\](?:: ?| (?=\S))", _rank),
        (r"\[[Rr]ank[ :=]{0,2}(?P<rank>\d{1,9})/(?P<world>\d{1,9})\]:? ?", _rank),
        (r"rank[ _]?(?P<rank>\d{1,9})(?:: |(?:\[\d+\])?\[\w+\]: )(?=\S)", _rank),
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
        (r"\[[\w./-]+\.(?:py|cc|cpp|c|h|cu):\d+(?::[\w<>]+)?\] ?", _skip),
        (r"\[(?P<host>[\w.-]+):(?P<local>\d+)\]: ?", _local),
        (r"\[(?!step|iter|epoch)[A-Za-z][\w-]*?(?P<local>\d+)\]: ?", _local),
        (
            r"\[(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d{2,7})(?: ?:\d+(?::\d+)?)?\] +(?=\S)",
            _host_process,
        ),
        (r"\[pod/(?P<host>[^/\]]+)[^\]]*\] ?", _host),
        (
            r"\([\w.:-]+ (?:rank=(?P<rank>\d+) )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\) ?",
            _process,
        ),
        (r"\(\w+, ip=(?P<host>[\w.:]+)\) ?", _host),
        (r"\[\d+,mpirank:(?P<rank>\d+),(?P<host>[\w.-]+)\]<\w+>:? ?", _rank_of_host),
        (r"\[\d+,(?P<rank>\d+)\]<(?:stderr|stdout|stddiag)>:? ?", _rank),
        (r" {0,4}(?P<task>\d{1,6}): (?=\S)", _task),
        (r"[a-z][\w-]*/(?P<task>\d+) (?:\[\d+\]: ?)?", _task),
        (r"(?P<host>[a-z0-9][\w.-]*\d) +\| ", _host),
        # Of words that end in a number and a colon, those that name no host, but a device.
        (
            r"(?!(?:GPU|cuda|step|iter|epoch|device|stage|layer|line)[ _-]?\d+:)"
            r"(?!E[A-Z]\d{4}:|nvidia-nvswitch\d+:|eth\d+:|mlx\d_\d+:|en[opsx]\d\w*:)"
            r"(?P<host>\d+\.\d+\.\d+\.\d+|[A-Za-z][\w.-]*\d[\w.-]*): (?=\S)",
            _host,
        ),
        (r"\[\d{3,9}\] (?=\S)", _skip),
        (rf"(?P<level>{_LEVELS}):[\w.]+: ?", _level),
        (rf"(?:- )?[\w.]+ - (?P<level>{_LEVELS}) - ", _level),
        (rf"- (?P<level>{_LEVELS}) - [\w.]+ - ", _level),
        (rf"\[(?P<level>{_LEVELS})\] ?", _level),
        (
            rf"(?P<level>{_LEVELS}) (?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) "
            r"\[?[\w./-]+:\d+\] ?",
            _vllm,
        ),
        (rf"(?P<level>{_LEVELS}) +(?:\||-|\[) *[\w./<>:-]+:\d+ *(?:\||-|\]) ?", _level),
        (rf"(?P<level>{_LEVELS}) *(?::|-) +(?:[a-z_]\w*(?:\.\w+)+: )?(?=\S)", _level),
        (rf"(?P<level>{_LEVELS}) +[\w.]+: ", _level),
        (r"[0-9a-f]{8} \|\| ", _skip),
        (r"(?P<host>[a-z0-9]+(?:-[a-z0-9]+)*-\d+) [a-z][\w-]* (?=\[rank)", _host),
        (r"\[(?P<task>\d{1,5})\]:? (?!finished|joined|started|is setting)(?= *\S)", _task),
        (r"(?:stdout|stderr) [FP] ", _skip),
        (r" {0,6}\d{1,7}(?:  |\t)", _skip),
        (r"\d{1,8}:(?=[\[A-Za-z])", _skip),
        (rf"\[NeMo [A-Z] (?P<stamp>{_DATE})[^\]]{{0,60}}\] ?", _stamp),
        (r"torch\.[\w.]+: (?=\[)", _skip),
        (r"\[titan\] ", _skip),
        (
            r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<host>[\w.-]+) "
            r"(?:[\w./@-]+\[\d+\]: |(?=[\w./-]+: ))",
            _syslog,
        ),
        (r"\[(?P<stamp>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?", _syslog),
        (r"kernel: ", _skip),
        (r"(?:<\d>|kern +:\w+ +: )", _skip),
        (r"\[ *[+<]? *\d+\.\d{6}>?\] *", _skip),
    )
)

# What is a prefix wherever it is: the words before it are one of a form that is not known.
_ANCHOR = re.compile(
    rf"\[rank\d+\]:|(?<=[A-Z] )\[rank\d+\] |\[[IWEF]\d{{3,4}} \d\d:|"
    rf"{_HOST}:\d+:\d+ (?=(?:\[\d+\] )?(?:[\w/.-]+:\d+ )?NCCL )"
)
_MOST_BEFORE = 100  # characters
_NO_NUMBER = re.compile(r"\d{500,}")  # digits that no program prints, and int() may refuse

# All of them at once, to learn which one is there: one group for each.
_ANY = re.compile(
    "|".join(f"({re.sub(r'[(][?]P<[a-z]+>', '(?:', pattern.pattern)})" for pattern, _ in _PREFIXES)
)


def peeled(number: int, raw: str, clock: Clock) -> Line:
    """The line without ANSI colours, quotation marks of viewers, folds and prefixes, and what the
    prefixes said."""
    text = _uncoloured(raw)
    line = Line(number, _FOLDED.sub("", text) if "[repeated" in text else text)
    for _ in range(_MOST_PREFIXES):
        which = _ANY.match(line.text)
        if which is None or which.lastindex is None or not which.end():
            anchored = "[" in line.text or "NCCL " in line.text
            anchor = _ANCHOR.search(line.text, 1, _MOST_BEFORE) if anchored else None
            if anchor is None:
                break
            line.text = line.text[anchor.start() :]
            continue
        pattern, peel = _PREFIXES[which.lastindex - 1]
        found = pattern.match(line.text)
        assert found is not None  # it is the same pattern
        peel(found, line, clock)
        line.text = line.text[found.end() :]
    return line


def plain(raw: str) -> str:
    """The text of a line alone."""
    return peeled(0, raw, Clock(None)).text


def _uncoloured(raw: str) -> str:
    text = _unquoted(raw)
    if len(text) > 500:
        text = _NO_NUMBER.sub("?", text)
    if "\x1b" in text or "\0" in text:
        text = _ANSI.sub("", text).replace("\0", "").lstrip(" ")
    return _LOST_ANSI.sub("", text) if text.startswith("[") else text


def _unquoted(raw: str) -> str:
    """The line as it was before Markdown quoted it, or HTML or JSON escaped it."""
    if raw.startswith('{"'):
        raw = message_of(raw)
    elif raw.startswith((">", "&gt;")):
        raw = _QUOTED.sub("", raw)
    return html.unescape(raw) if "&" in raw and _ENTITY.search(raw) else raw
