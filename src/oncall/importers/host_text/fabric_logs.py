"""Logs of the fabric manager and of IMEX, the service of multi-node NVLink domains.

[Nov 20 2026 03:10:12] [ERROR] [tid 4711] detected NVSwitch fatal error 20034 on ...
"""

from __future__ import annotations

import re

from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page
from oncall.importers.logs.clock import Clock

_LINE = re.compile(
    r"\[(?P<month>[A-Z][a-z]{2}) (?P<day>[ \d]\d) (?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d)\] "
    r"\[(?P<level>[A-Z]+)\] \[tid \d+\] (?P<text>.*)"
)
_BAD = ("ERROR", "CRITICAL", "FATAL")
_WORDS = re.compile(r"\b(?:error|fail(?:ed|ure)?|fatal|abort)", re.IGNORECASE)
DAEMONS = {"nv-fabricmanager": "fabric_manager", "nvidia-imex": "imex"}
_IMEX = re.compile(r"\bIMEX\b|nvidia-imex", re.IGNORECASE)
_MOST = 200


def recognises(head: str) -> bool:
    """Whether its first lines are of either."""
    return any(_LINE.match(line) for line in files.lines(head)[:5])


def read(lines: list[str], page: Page) -> None:
    """Add a row for each error."""
    clock = Clock(page.at_ns)
    is_imex = bool(_IMEX.search(page.path.name)) or any(_IMEX.search(one) for one in lines[:50])
    kept = 0
    for number, line in enumerate(metered(lines), start=1):
        found = _LINE.match(line)
        if found and found["level"] in _BAD and kept < _MOST:
            kept += 1
            code, source = ("imex", "imex") if is_imex else ("fabric_manager", "fabricmanager")
            row = page.event(source, code, None, found["text"], number)
            date = "{month} {day} {time} {year}".format(**found.groupdict())
            row["at_ns"] = clock.syslog(date)
    page.note = "no line of the fabric's log reports an error"


def daemon_event(program: str | None, text: str) -> str | None:
    """The code of what one of these services wrote into the journal; None where it is no error."""
    code = DAEMONS.get((program or "").rpartition("/")[2])
    return code if code and _WORDS.search(text) else None
