"""The kernel's log as text: `dmesg` with its stamps, journalctl, syslog, and lines cut from them.

Lines are judged by the table that the collector reads /dev/kmsg with. Stamps that count from boot
give no instant: which of two hosts was first is then unknown, and the order in the file remains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import Unreadable
from oncall.evidence.codes.kernel_lines import WORDS, known_line, lost_gpu
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.documents import parse_json
from oncall.importers.host_text.fabric_logs import DAEMONS, daemon_event
from oncall.importers.host_text.page import Page
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.needles import Needles
from oncall.importers.logs.reading import Log

_BOOT = r"\[ *(?P<boot>\d{1,9}\.\d{6})\]"  # since boot: longer is the time of day
_DATED = r"\[(?P<dated>[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]"
_ISO = r"(?P<iso>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)"
_MONTH = r"(?P<month>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?)"
_HOST = r"(?P<host>[A-Za-z0-9][\w.-]*)"
_PROGRAM = r"(?P<program>[\w./@-]+)(?:\[\d+\])?: "
_SINCE = r"\[ *+<? *+\+?\d+\.\d{6}>?\]"  # of `dmesg -d`: since the line before
_STAMPS = tuple(
    re.compile(rf"\A(?:{stamp})")
    for stamp in (
        rf"(?:<\d+>|[a-z]+ *:[a-z]+ *: )?(?:{_BOOT}|{_DATED}|{_SINCE})(?:\[ *[TC]\d+\])? ?",
        rf"(?:{_ISO}|{_MONTH}) {_HOST} {_PROGRAM}",
        rf"<\d+>1 {_ISO} {_HOST} (?P<program>\S+) \S+ \S+ (?:-|(?:\[[^\]]*\])+) ",  # RFC 5424
        rf"{_ISO} ",
        r"(?P<program>kernel): ",
    )
)
_MORE = re.compile(rf"{_BOOT} ?")  # syslog repeats the kernel's own stamp
_VIRTUAL = re.compile(r"\b(?:veth|docker|virbr|br-|cni|flannel|cali|tunl|vmnet|lxc|podman)\w*")
# While a host starts its links come up one after the other, each first reported as down.
_STARTING_S = 300.0
_STARTED = "Linux version "  # the kernel's first line
_KERNEL = ("kernel", "NetworkManager")
_LEAST_SHARE = 0.5  # of the lines, that look like those of a kernel's log or a journal
_HEAD_LINES = 40
_NAME = re.compile(r"dmesg|syslog|messages|journal|kern", re.IGNORECASE)
_NEEDLES = Needles({word.encode(): 1 for word in (*WORDS, *DAEMONS, _STARTED)})
_MOST_OF_A_KIND = 200  # of one code and device: floods say no more
_TEXT = 400


@dataclass(frozen=True)
class Said:
    """A line without its stamp; `boot_s` where that counts from boot."""

    text: str
    at_ns: int | None = None
    boot_s: float | None = None
    host: str | None = None
    program: str | None = None


def recognises(head: str, name: str) -> bool:
    """Whether most lines are stamped as those of a kernel's log or a journal, or report what a
    kernel reports."""
    lines = [line for line in files.lines(head) if line.strip()][:_HEAD_LINES]
    clock = Clock(0)
    said = [_said(line, clock) for line in lines]
    known = [known_line(one.text if one else line) for one, line in zip(said, lines, strict=True)]
    strong = any(known) or any(one and one.boot_s is not None for one in said)
    strong = strong or any(one and one.program == "kernel" for one in said)
    # Lines of one message that a driver breaks have one stamp.
    stamped = sum(
        one is not None or line.lstrip().startswith("NVRM:")
        for one, line in zip(said, lines, strict=True)
    )
    return bool(
        lines
        and (strong or _NAME.search(name))
        and stamped + sum(map(bool, known)) >= _LEAST_SHARE * len(lines)
    )


def read(path: Path, page: Page) -> str | None:
    """Add the events of a file; returns why it was not read to its end, if so."""
    log = Log(path, _NEEDLES)
    _add(((one.number, one.text, one.above(2)) for one in log.candidates()), page)
    return log.problem


def read_lines(lines: list[str], page: Page) -> None:
    """The same of the lines of one host, where a file has several."""
    _add(
        (
            (number, line, lines[max(0, number - 3) : number - 1][::-1])
            for number, line in enumerate(metered(lines), start=1)
        ),
        page,
    )


def _add(candidates: Iterable[tuple[int, str, list[str]]], page: Page) -> None:
    """Add the events of lines: each with its number and the lines above it, the nearest first."""
    clock = Clock(page.at_ns)
    count: dict[tuple[str, str | None], int] = {}
    started_ns = None
    for number, line, above in candidates:
        said = _said(line, clock) or Said(line.strip())
        page.node = said.host or page.node
        if said.text.startswith(_STARTED):
            started_ns = said.at_ns
        for code, device, text in _events(said, above):
            count[code, device] = count.get((code, device), 0) + 1
            if count[code, device] <= _MOST_OF_A_KIND and not _is_of_start(code, said, started_ns):
                source = "kernel" if said.program in (*_KERNEL, None) else str(said.program)
                row = page.event(source, code, device, text[:_TEXT], number)
                row["at_ns"] = said.at_ns
                row["node"] = said.host or page.node
    page.note = "no line of a kernel's log reports a fault"


def _events(said: Said, above: list[str]) -> Iterator[tuple[str, str | None, str]]:
    """Code, device and text of what a line reports."""
    known = known_line(said.text)
    if known is not None:
        if not (known.code.startswith("link_") and _VIRTUAL.search(said.text)):
            yield known.code, known.device, said.text
    elif lost := lost_gpu(said.text, above):
        yield lost.code, lost.device, "the GPU has fallen off the bus"
    elif (code := daemon_event(said.program, said.text)) is not None:
        yield code, None, said.text


def _is_of_start(code: str, said: Said, started_ns: int | None) -> bool:
    """Whether it is of the minutes in which links come up; `started_ns`: for dated stamps."""
    since_s = said.boot_s
    if since_s is None and said.at_ns is not None and started_ns is not None:
        since_s = (said.at_ns - started_ns) / 1e9
    return (
        code in ("link_down", "cable_unplugged")
        and since_s is not None
        and 0 <= since_s < _STARTING_S
    )


def _said(line: str, clock: Clock) -> Said | None:
    """A line as one of a kernel's log, a journal or syslog; None if it is stamped otherwise."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        return _of_journal(line)
    for stamp in _STAMPS:
        if found := stamp.match(line):
            break
    else:
        return None
    parts = found.groupdict()
    text, boot = line[found.end() :], parts.get("boot")
    if more := _MORE.match(text):
        text, boot = text[more.end() :], more["boot"]
    at_ns = None
    if parts.get("iso"):
        at_ns = clock.iso(parts["iso"])
    elif dated := parts.get("dated") or parts.get("month"):
        at_ns = clock.syslog(dated.partition(".")[0])
    if parts.get("iso") and not parts.get("program"):
        text = text.removeprefix("kernel: ")
    return Said(
        text.strip(), at_ns, float(boot) if boot else None, parts.get("host"), parts.get("program")
    )


def _of_journal(line: str) -> Said | None:
    """A line of `journalctl -o json`."""
    try:
        entry = parse_json(line.encode())
    except Unreadable:
        return None
    message = entry.get("MESSAGE") if isinstance(entry, dict) else None
    if not isinstance(message, str) or "__REALTIME_TIMESTAMP" not in entry:
        return None
    stamp, host = str(entry["__REALTIME_TIMESTAMP"]), entry.get("_HOSTNAME")
    at_ns = int(stamp) * 1000 if stamp.isdecimal() and len(stamp) <= 17 else None
    program = entry.get("SYSLOG_IDENTIFIER")
    return Said(
        message.strip(),
        at_ns,
        None,
        host if isinstance(host, str) else None,
        program if isinstance(program, str) else None,
    )
