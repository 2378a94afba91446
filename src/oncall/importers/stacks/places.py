"""Whose stacks they are: the rank, host and process in a file's name or in a heading."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oncall.importers.host_names import is_host, may_be_host
from oncall.importers.stacks.dump import Place

# Ranks within something smaller than the job.
_PARTIAL = ("local", "node", "machine", "group", "role", "peer", "tp", "pp", "dp", "cp", "ep", "sp")
_RANK = re.compile(
    "(?:^|(?<=[^a-z]))"
    + "".join(f"(?<!{word}[-_ ])" for word in _PARTIAL)
    + r"(?:(?:global[-_ ]?)?rank[-_.:=# ]{0,3}|(?:worker|scheduler_DP\d{1,4}|scheduler)_"
    r"(?:PP0_)?TP)(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_LOCAL_RANK = re.compile(r"--local[-_]rank[= ](\d{1,4})(?!\d)")
_PID = re.compile(r"(?:^|[^a-z])pid[-_.:=# ]{0,3}(\d{1,10})(?!\d)", re.IGNORECASE)
_HOST = re.compile(r"(?:^|[^a-z])(?:host|node|pod)[:= ]{1,3}([A-Za-z0-9][\w.-]*)", re.IGNORECASE)
_BEFORE, _AFTER = " \t=#*+>~-", " \t\r=#*+<~:-"  # decoration
_HEADING = re.compile(r"^(?:==+|##+|--+|\*\*+|>>+|\+\++|==>)\s*[A-Za-z0-9]")
_OF_TAIL = re.compile(r"^==> (?:.*/)?([^/]+) <==\s*$")
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


def of_command(pid: int, command: str) -> Place:
    """What the command or title of a process says: `train.py --local_rank=2`,
    `sglang::scheduler_DP1_TP3`."""
    rank, local_rank = _RANK.search(command), _LOCAL_RANK.search(command)
    return Place(
        rank=_rank(rank[1]) if rank else None,
        pid=pid,
        local_rank=int(local_rank[1]) if local_rank else None,
    )


def number_of(name: str) -> int | None:
    """The only number in a file's name, if it is too small for that of a process."""
    numbers = re.findall(r"\d+", _without_suffix(name))
    return int(numbers[0]) if len(numbers) == 1 and len(numbers[0]) < 4 else None


def is_rule(line: str) -> bool:
    """A line of dashes, between which tools such as clush write a host."""
    return _RULE.match(line) is not None


def heading(line: str) -> Place | None:
    """Whose stacks follow, if the line is a heading as people and tools write them."""
    if found := _OF_TAIL.match(line):
        return file_place(found[1])
    if _HEADING.match(line):
        return bare_heading(line)
    # Without decoration the line says whose they are, and nothing else.
    if not _RANK.search(line) or line[:1].isspace() or len(line) >= 80:
        return None
    words = _words(_HOST.sub(" ", line))
    alone = not words or (len(words) == 1 and may_be_host(words[0]))
    return bare_heading(line) if alone else None


def bare_heading(line: str) -> Place | None:
    """What a heading names; None if nothing."""
    text = line.lstrip(_BEFORE).rstrip(_AFTER)
    rank, pid, host = _RANK.search(text), _PID.search(text), _HOST.search(text)
    place = Place(
        _rank(rank[1]) if rank else None,
        host[1] if host else _host_in(_words(text)),
        int(pid[1]) if pid else None,
    )
    return place if place != Place() else None


def _words(text: str) -> list[str]:
    words = (word.strip("-.") for word in re.split(r"[\s,;()\[\]:/]+", _bare(text)))
    return [word for word in words if word]


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
    return Place(
        _rank(rank[1]) if rank else None,
        next(filter(is_host, (one.strip("-.") for one in words)), None),
        known,
    )


def _bare(text: str) -> str:
    """The text without ranks, processes and the names of tools."""
    return _TOOL.sub(" ", _PID.sub(" ", _RANK.sub(" ", _without_suffix(text))))


def _host_in(words: Sequence[str]) -> str | None:
    """The host among the words of a heading; one that stands alone may have any name."""
    if len(words) == 1 and may_be_host(words[0]):
        return words[0]
    return next(filter(is_host, words), None)


def _without_suffix(name: str) -> str:
    return re.sub(r"(?:\.(?:txt|log|json|out|err|raw|folded|gz|stacks?|dump)){1,9}$", "", name)


def _rank(digits: str) -> int | None:
    return int(digits) if int(digits) < _LARGEST_RANK else None
