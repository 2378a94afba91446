"""Peels off what launchers, viewers and loggers put before a program's own words."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.json_lines import message_of
from oncall.importers.logs.line import Line

_MOST_PREFIXES = 10
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b.?")  # inside of JSON
# A colour whose escape character was lost on the way.
_LOST_ANSI = re.compile(r"^(?:\[\d{1,2}(?:;\d{1,3})*m)+ ?")
_FOLDED = re.compile(r"(?<!\s)\s*+\[repeated \d+x across cluster\].*")
_QUOTED = re.compile(r"^(?:(?:>|&gt;) ?)+")
_ENTITY = re.compile(r"&(?:lt|gt|amp|quot|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_HOST = r"[A-Za-z0-9][\w.-]*"
_LEVELS = "DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL"

# What a prefix says, by its groups: the line's attribute, which a later prefix replaces.
_NUMBERS = {"rank": "rank", "world": "world", "local": "local_rank", "task": "task", "pid": "pid"}
_WORDS = {"host": "node", "ip": "node", "nccl": "nccl"}


def _peel(found: re.Match[str], line: Line, clock: Clock) -> None:
    """Take what a prefix says. Who logged a line says whose it is only where nothing else does."""
    said = {name: text for name, text in found.groupdict().items() if text is not None}
    for name, text in said.items():
        if name in _NUMBERS:
            setattr(line, _NUMBERS[name], int(text))
        elif name in _WORDS:
            setattr(line, _WORDS[name], text)
        elif name == "level":
            line.level = text[0]
        elif name == "by":
            line.node = line.node or text
        elif name == "by_pid":
            line.pid = line.pid or int(text)
    if "nccl" in said:
        line.gpu = int(said["gpu"]) if "gpu" in said else None
    line.at_ns = _instant(said, clock) or line.at_ns


def _instant(said: Mapping[str, str], clock: Clock) -> int | None:
    if "stamp" in said:
        return clock.iso(said["stamp"])
    if "syslog" in said:
        return clock.syslog(said["syslog"])
    if "day" in said:
        return clock.month_day(said.get("month", "") + said["day"], said.get("time"))
    if "epoch" in said:
        return int((said["epoch"] + said.get("part", "")).ljust(19, "0")[:19])
    if "year" not in said:
        return None
    # Month first between slashes, unless that is no month; day first between dots.
    first, second = int(said["first"]), int(said["second"])
    month_first = said["between"] == "/" and first <= 12
    month, day = (first, second) if month_first else (second, first)
    return clock.iso(f"{said['year']}-{month:02}-{day:02} {said['time']}")


_DATE = r"\d{4}[-/]\d\d[-/]\d\d[T _]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_TIME = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_FORMS = (
    # HOST:PID:TID [DEV] file.cc:LINE NCCL LEVEL, the stamp since 2.26.
    rf" ?(?:\[(?P<stamp>{_DATE})\] )?(?P<host>{_HOST}):(?P<pid>\d+):\d+ "
    r"(?:\[(?P<gpu>\d+)\] )?(?:[\w/.-]+:\d+ )?(?:\(\w+\) )?"
    r"NCCL (?P<nccl>WARN|INFO|ERROR|TRACE|CALL) ",
    # rsyslog and `journalctl -o short-iso`, then as RFC 5424 and `-o short-full` have it.
    rf"(?P<stamp>{_DATE}(?:Z|[+-]\d\d:?\d\d)) (?P<by>{_HOST}) "
    r"(?:[\w./@-]+\[\d+\]: |(?=kernel: ))",
    rf"<\d{{1,3}}>1 (?P<stamp>{_DATE}(?:Z|[+-]\d\d:\d\d)) (?P<by>{_HOST}) "
    r"\S+ \S+ \S+ (?:-|(?:\[[^\]]*\])+) (?:\ufeff|BOM)?",
    rf"[A-Z][a-z]{{2}} (?P<stamp>{_DATE})(?: [A-Z]{{3,4}})? (?P<by>{_HOST}) "
    r"(?:[\w./@-]+\[\d+\]: |(?=kernel: ))",
    rf"(?P<stamp>{_DATE}(?:Z|[+-]\d\d:?\d\d)?)(?= |$|\||:)[ |:]*",
    r"\[?(?P<first>\d{1,2})(?P<between>[/.])(?P<second>\d{1,2})[/.]"
    rf"(?P<year>20\d\d),? (?P<time>{_TIME})\]?(?= |$|\||:)[ |:]*",
    r"(?=\[|\d{10}\.|\d{13}\b)\[?(?P<epoch>1[4-9]\d{8}(?:\d{3})?)"
    r"(?:\.(?P<part>\d{1,9}))?\]?(?:: | +)(?=\S)",
    # What a log service puts before its own stamp.
    r"\| (?=\d{4}-\d\d-)",
    # `grep` over several files.
    r"[\w./-]{1,200}\.(?:log|out|err|txt)(?:\.\d+)?:(?:\d{1,9}:)?(?=\S)",
    # SGLang's and vLLM's servers: of one replica and stage, the tensor rank is the rank.
    rf" ?\[(?P<stamp>{_DATE}) (?:DP0 )?TP(?P<rank>\d{{1,4}})(?: EP\d+)?(?: PP0)?\]:? ?",
    r"\((?:Vllm)?Worker[_ ](?:DP0[_ ])?(?:PP0[_ ])?TP(?P<rank>\d{1,4})(?:[_ ]EP\d+)? "
    r"pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\) ?",
    rf" ?\[(?P<stamp>{_DATE})[^\]]{{0,30}}\]:? ?",
    r"\[rank[:=]? ?(?P<rank>\d{1,9})\](?:: ?| (?=\S))",
    r"\[[Rr]ank[ :=]{0,2}(?P<rank>\d{1,9})/(?P<world>\d{1,9})\]:? ?",
    r"rank[ _]?(?P<rank>\d{1,9})(?:: | \| |(?:\[\d+\])?\[\w+\]: )(?=\S)",
    rf"[\w.-]{{1,60}} \| (?=(?:{_LEVELS}) +\|)",  # a field between others
    r"\[(?P<level>[IWEF])(?P<day>\d{3,4})? ?(?P<time>\d\d:\d\d:\d\d\.\d+ )?"
    r"(?:\d+ )?[\w./-]+\.(?:cpp|hpp|h|cc|cu|py):\d+\] ?",
    r"(?P<level>[IWEF])(?P<day>\d{4}) (?P<time>\d\d:\d\d:\d\d\.\d+) +(?P<by_pid>\d+) "
    r"[^\]\s]{1,200}\] ?",
    r"\[[\w./-]+\.(?:py|cc|cpp|c|h|cu):\d+(?::[\w<>]+)?\] ?",
    r"\[(?P<by>[\w.-]+):(?P<local>\d+)\]: ?",
    r"\[(?!step|iter|epoch)[A-Za-z](?:[\w-]*(?:[^\W\d]|-))?+(?P<local>\d+)\]: ?",
    r"\[(?P<host>[A-Za-z][\w.-]*):(?P<pid>\d{2,7})(?: {0,5}:\d+(?::\d+)?)?\] +(?=\S)",
    rf"\[(?P<host>{_HOST}):\d+:(?P<pid>\d+) - [\w./-]+\.c:\d+\] (?P<level>{_LEVELS}) ",
    r"\[pod/(?P<host>[^/\]]++)[^\]]*\] ?",
    # Ray's; SkyPilot's, whose ranks are those of nodes.
    r"\([\w.:-]+(?:, rank=\d+,| rank=(?P<rank>\d+))? pid=(?P<pid>\d+)(?:, ip=(?P<ip>[\w.:]+))?\) ?",
    r"\(\w+, ip=(?P<host>[\w.:]+)\) ?",
    r"\[\d+,mpirank:(?P<rank>\d+),(?P<host>[\w.-]+)\]<\w+>:? ?",
    r"\[\d+,(?P<rank>\d+)\]<(?:stderr|stdout|stddiag)>:? ?",
    r" {0,4}(?P<task>\d{1,6}): (?= {0,20}\S)",
    # XLA's and TensorFlow's, after the stamp.
    r"(?P<level>[IWEF]) [\w./-]{1,200}\.(?:cc|h|cpp):\d+\] ",
    r"[a-z][\w-]*/(?P<task>\d+) (?:\[\d+\]: ?)?",
    r"(?P<host>[a-z0-9][\w.-]*\d) +\| ",
    # Of words that end in a number and a colon, those that name no host, but a device.
    r"(?!(?:GPU|cuda|step|iter|epoch|device|stage|layer|line)[ _-]?\d+:)"
    r"(?!E[A-Z]\d{4}:|[\w.]{1,100}(?:Error|Exception):|nvidia-nvswitch\d+:|eth\d+:|mlx\d_\d+:|en[opsx]\d\w*:)"
    r"(?P<host>\d+\.\d+\.\d+\.\d+|[A-Za-z](?=[\w.-]*\d)[\w.-]*+): (?=\S)",
    r"\[\d{3,9}\] (?=\S)",
    rf"(?P<level>{_LEVELS}):[\w.]+: ?",
    rf"(?:- )?[\w.]++ - (?P<level>{_LEVELS}) - ",
    rf"- (?P<level>{_LEVELS}) - [\w.]+ - ",
    rf"\[(?P<level>{_LEVELS}|[EWI])\] ?",
    rf"(?P<level>{_LEVELS}) (?P<month>\d\d)-(?P<day>\d\d) (?P<time>\d\d:\d\d:\d\d) "
    r"\[?[\w./-]+:\d+\] ?",
    rf"(?P<level>{_LEVELS}) +(?:\||-|\[) *[\w./<>:-]+:\d+ *(?:\||-|\]) ?",
    rf"(?P<level>{_LEVELS}) *[:|-] +(?:[a-z_]\w*+(?:\.\w++)++: )?(?=\S)",
    rf"(?P<level>{_LEVELS}) +[\w.]+: ",
    r"[0-9a-f]{8} \|\| ",
    r"(?P<host>[a-z0-9][a-z0-9-]*-\d+) [a-z][\w-]*+ (?=\[rank)",
    r"\[(?P<task>\d{1,5})\]:? (?!finished|joined|started|is setting)(?= *\S)",
    r"(?:stdout|stderr) [FP] ",
    r" {0,6}\d{1,7}(?:  |\t)",
    r"\d{1,8}:(?=[\[A-Za-z])",
    rf"\[NeMo [A-Z] (?P<stamp>{_DATE})[^\]]{{0,60}}\] ?",
    r"torch\.[\w.]+: (?=\[)",
    r"\[titan\] ",
    r"(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) (?P<by>[\w.-]+) "
    r"(?:[\w./@-]+\[\d+\]: |(?=[\w./-]+: ))",
    r"\[(?P<syslog>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\] ?",
    r"kernel: ",
    r"(?:<\d>|kern +:\w+ +: )",
    r"\[ *+[+<]? *+\d+\.\d{6}>?\] *",
)
_PREFIXES = tuple(re.compile(rf"\A(?:{form})") for form in _FORMS)

# What is a prefix wherever it is: the words before it are one of a form that is not known.
_ANCHOR = re.compile(
    rf"\[rank\d+\]:|(?<=[A-Z] )\[rank\d+\] |\[[IWEF]\d{{3,4}} \d\d:|"
    rf"(?<![\w.-]){_HOST}:\d+:\d+ (?=(?:\[\d+\] )?(?:[\w/.-]+:\d+ )?NCCL )"
)
_MOST_BEFORE = 100  # characters
_NO_NUMBER = re.compile(r"\d{500,}")  # digits that no program prints, and int() may refuse

# All of them at once, to learn which one is there: one group for each.
_ANY = re.compile("|".join(f"({re.sub(r'[(][?]P<[a-z_]+>', '(?:', form)})" for form in _FORMS))


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
        found = _PREFIXES[which.lastindex - 1].match(line.text)
        assert found is not None  # it is the same pattern
        _peel(found, line, clock)
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
