"""Lines that are JSON: Docker's own, Cloud Logging, Fluent Bit, Loki, and what loggers of programs
write (python-json-logger, structlog, loguru, zap, pino). Their fields become a line of text."""

from __future__ import annotations

import re

_MESSAGES = ("log", "textPayload", "message", "msg", "line", "event", "text")
_STAMPS = (
    *("timestamp", "time", "ts", "@timestamp", "asctime", "datetime", "date", "created"),
    *("event_time", "t"),
)
_ERRORS = ("exc_info", "exception", "exc_text", "stack_trace", "traceback", "stack", "error.stack")
_RANKS = ("rank", "global_rank", "process_rank")
_HOSTS = ("pod_name", "hostname", "host", "nodename", "node", "node_name")
_LEVELS = ("level", "severity", "levelname")
_PLACED = {*_MESSAGES, *_STAMPS, *_ERRORS, *_RANKS, *_HOSTS, *_LEVELS, "stream"}
_FIELD = re.compile(
    r'"([\w@./-]{1,40})": ?'  # its name, then its value or number
    r'(?:"((?:[^"\\]++|\\.)*+)"|(-?\d{1,20}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?\b|NaN))'
)
# An object without a message whose numbers are those of a step.
_METRICS = re.compile(r'"(?:(?:global|train|training|trainer)?[_/]?(?:step|iter|iteration))": ?\d')
_TRACEBACK = "Traceback (most recent call last)"
_MOST_OF_FIELD = 300  # characters
_FAILED = {"ERROR", "CRITICAL", "FATAL"}
_HOST = re.compile(r"[A-Za-z0-9][\w.-]{0,200}")
# Seconds, milliseconds, microseconds or nanoseconds since 1970, by their digits: of 2014 to 2033.
_EPOCH = re.compile(r"(?P<seconds>1[4-9]\d{8})(?P<more>(?:\d{3}){0,3})(?:\.(?P<part>\d{1,9}))?")


def message_of(raw: str) -> str:
    """The message of a JSON object behind its stamp, pod or host, and rank, and before its other
    fields, as `name: value`; of a failure, the last line of its traceback. What is no such object
    stays as it is."""
    fields: dict[str, str] = {}
    for name, value, number in _FIELD.findall(raw):
        fields.setdefault(name, value or number)
    said = _first(fields, _MESSAGES)
    raised = _first(fields, _ERRORS) or (said if said and _TRACEBACK in said else "")
    failed = [line for line in raised.split("\\n") if line.strip()]
    others = [
        f"{name}: {value}"
        for name, value in fields.items()
        if name not in _PLACED and len(value) <= _MOST_OF_FIELD
    ]
    if failed:
        said = failed[-1]
    elif said is None and not _METRICS.search(raw):
        return raw
    elif not any(name in fields for name in ("log", "textPayload")):  # of a whole line
        said = ", ".join([*([said] if said else []), *others])
    rank, host = _first(fields, _RANKS) or "", _first(fields, _HOSTS) or ""
    before = _stamp(_first(fields, _STAMPS) or "")
    before += f"[pod/{host}] " if _HOST.fullmatch(host) else ""
    before += f"[rank{rank}]: " if rank.isdecimal() and len(rank) < 8 else ""
    level = (_first(fields, _LEVELS) or "").upper()
    before += f"{level}: " if level in _FAILED else ""
    text = (said or "").replace("\\n", "").replace('\\"', '"').replace("\\t", "\t")
    return before + text


def _first(fields: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((fields[name] for name in names if name in fields), None)


def _stamp(text: str) -> str:
    """A stamp as the beginning of a line; numbers as seconds."""
    found = _EPOCH.fullmatch(text)
    if found is None:
        is_number = text.replace(".", "", 1).lstrip("-").isdecimal()
        return "" if is_number or not text else f"{text} "
    part = (found["more"] + (found["part"] or "")).ljust(9, "0")[:9]
    return f"{found['seconds']}.{part} "
