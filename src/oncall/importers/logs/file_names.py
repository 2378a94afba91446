"""Which host, rank or attempt a log is of, by its file's name."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from pathlib import Path

# of torchrun's --log-dir: the attempt, then the local rank
ELASTIC = re.compile(r"attempt_(\d+)/(\d+)/(?:stdout|stderr)\.log$")
_NUMBERED = re.compile(
    r"(?:^|[-_.])((?:node|host|gpu|worker|cn|gn|ip)-?\d[\w-]*?)(?=[_.]|$)", re.IGNORECASE
)
_ENDINGS = re.compile(
    r"(?:\.(?:log|out|err|txt|stdout|stderr|gz|zst|xz|bz2|\d{1,3}))+$", re.IGNORECASE
)
_BREAK = re.compile(r"[_.]")
_DIGITS = re.compile(r"\d+")
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])(?:global)?rank[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE)
_PROCESS_IN_NAME = re.compile(
    r"(?:^|[^a-z])(?:process|proc|task)[-_.]?(\d{1,6})(?!\d)", re.IGNORECASE
)


def ranks_of(paths: Sequence[Path]) -> dict[Path, int]:
    """The rank that each file is called after: `rank3`, or `process_3` where there is one for each
    number from 0 on."""
    ranks = {path: int(found[1]) for path in paths if (found := _RANK_IN_NAME.search(path.name))}
    numbers = {
        path: int(found[1]) for path in paths if (found := _PROCESS_IN_NAME.search(path.name))
    }
    all_there = len(paths) > 1 and sorted(numbers.values()) == list(range(len(paths)))
    return ranks or (numbers if all_there else {})


def host_of(path: Path, named: Set[str]) -> str | None:
    """The host that a file is called after, if it is. `named` are hosts that lines name: a part of
    the name that differs from one of them in numbers alone is another of them. Else the name says
    so itself: `node07`; where hosts begin as it does, that beginning belongs to it."""
    stem = _ENDINGS.sub("", path.name)
    parts = _BREAK.split(stem)
    forms = {_form(one) for name in named for one in (name, name.partition(".")[0])}
    for part in (stem, *sorted(parts, key=len, reverse=True)):
        if part in named or (_DIGITS.search(part) and _form(part) in forms):
            return part
    found = _NUMBERED.search(stem)
    if found is None:
        return next((part for part in parts if _begins_alike(part, named)), None)
    whole = next((part for part in parts if part.endswith(found[1])), found[1])
    beginning = whole[: -len(found[1])]
    return whole if beginning and any(name.startswith(beginning) for name in named) else found[1]


def _begins_alike(part: str, named: Set[str]) -> bool:
    beginning, hyphen, rest = part.partition("-")
    return bool(hyphen and _DIGITS.search(rest)) and any(
        name.startswith(beginning + hyphen) for name in named
    )


def _form(name: str) -> str:
    return _DIGITS.sub("0", name)
