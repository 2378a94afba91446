"""Whose stacks they are: the rank, host and process in a file's name or in a heading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.stacks.dump import Place

_RANK = re.compile(r"(?:^|[^a-z])(?:global[-_ ]?)?rank[-_.:=# ]{0,3}(\d{1,7})(?!\d)", re.IGNORECASE)
_PID = re.compile(r"(?:^|[^a-z])pid[-_.:=# ]{0,3}(\d{1,10})(?!\d)", re.IGNORECASE)
_HOST = re.compile(r"(?:^|[^a-z])(?:host|node|pod)[:= ]{1,3}([A-Za-z0-9][\w.-]*)", re.IGNORECASE)
_DECORATION = re.compile(r"^[\s=#*+>~-]+|[\s=#*+<~:-]+$")
_HEADING = re.compile(r"^\s*(?:==+|##+|--+|\*\*+|>>+|\+\++|==>)\s*[A-Za-z0-9]")
_HOST_NAME = re.compile(r"[A-Za-z][\w-]*\d[\w.-]*|\d{1,3}(?:\.\d{1,3}){3}|[a-z][\w-]*-[\w.-]+")
_RULE = re.compile(r"^\s*[-=*#]{3,}\s*$")
# What people call such files, which is no host.
_TOOL = re.compile(
    r"(?:^|(?<=[-_. ]))(?:py[-_]?spy|py[-_]?stacks?|stack(?:trace)?s?|traces?|dumps?|bt|gdb"
    r"|faulthandler|threads?|native|hang|out|err|log|txt|json|raw|main|job|rank|pid|py)\d{0,2}"
    r"(?=$|[-_. ])",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d{1,10}")
_LARGEST_RANK = 1_000_000


def is_rule(line: str) -> bool:
    """A line of dashes, between which tools such as clush write a host."""
    return _RULE.match(line) is not None


def heading(line: str) -> Place | None:
    """Whose stacks follow, if the line is a heading as people and tools write them."""
    if not _HEADING.match(line):
        return bare_heading(line) if _RANK.search(line) and len(line) < 80 else None
    return bare_heading(line)


def bare_heading(line: str) -> Place | None:
    """What a heading names; None if nothing."""
    text = _DECORATION.sub("", line)
    rank, pid, host = _RANK.search(text), _PID.search(text), _HOST.search(text)
    node = host[1] if host else _host_in(re.split(r"[\s,;()\[\]:/]+", _bare(text)))
    place = Place(_rank(rank[1]) if rank else None, node, int(pid[1]) if pid else None)
    return place if place != Place() else None


def file_place(name: str) -> Place:
    """What the name of a file says: `gpu017_rank12_pid4312.txt`, `rank12.txt`, `4312.json`."""
    stem = _without_suffix(name)
    rank, pid = _RANK.search(stem), _PID.search(stem)
    words = [word for word in re.split(r"[_\s]+", _bare(stem)) if word.strip("-.")]
    numbers = [word for word in (one.strip("-.") for one in words) if _NUMBER.fullmatch(word)]
    known = int(pid[1]) if pid else int(numbers[0]) if len(numbers) == 1 and not rank else None
    # Small numbers in names count files, or are ranks that nothing calls so.
    if not pid and known is not None and known < 300:
        known = None
    return Place(_rank(rank[1]) if rank else None, _host_in(words), known)


def _bare(text: str) -> str:
    """The text without ranks, processes and the names of tools."""
    return _TOOL.sub(" ", _PID.sub(" ", _RANK.sub(" ", _without_suffix(text))))


def _host_in(words: Sequence[str]) -> str | None:
    named = (word.strip("-.") for word in words)
    return next((word for word in named if _HOST_NAME.fullmatch(word)), None)


def _without_suffix(name: str) -> str:
    return re.sub(r"(?:\.(?:txt|log|json|out|err|raw|folded|gz|stacks?|dump))+$", "", name)


def _rank(digits: str) -> int | None:
    return int(digits) if int(digits) < _LARGEST_RANK else None
