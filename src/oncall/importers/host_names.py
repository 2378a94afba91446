"""Which words name a host, in names of files and in headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

NUMBERED = re.compile(
    r"(?:node|host|gpu|worker|cn|gn|ip|dgx|hgx|trn|n|c|g|h|r\d)[-_]?\d[\w.-]*", re.IGNORECASE
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
# A GPU's model, which is named as hosts are.
_MODEL = re.compile(r"h(?:20|100|200|800)(?:[-_]?(?:\d*gb|sxm\d?|pcie|nvl))*", re.IGNORECASE)
_POSSIBLE = re.compile(r"[A-Za-z](?=[\w-]*\d)[\w.-]+|[a-z](?=[\w-]*-[\w.-])[\w.-]+")
# What is numbered and no host.
_COUNTED = re.compile(
    r"(?:step|iter(?:ation)?|epoch|run|attempt|try|look|sample|round|part|stage|v|version|python"
    r"|torch|cuda|nccl)[-_.]?\d[\w.-]*",
    re.IGNORECASE,
)


def is_host(word: str) -> bool:
    """Whether a word is a host's name or address wherever it stands: `gpu017`, `node-3`."""
    numbered = NUMBERED.fullmatch(word) and not _MODEL.fullmatch(word)
    return bool(numbered or _ADDRESS.fullmatch(word))


def may_be_host(word: str) -> bool:
    """Whether a word that stands alone is a host's name: also `gpu-a-18`, `login-a.site`."""
    is_other = _MODEL.fullmatch(word) or _COUNTED.fullmatch(word)
    return is_host(word) or bool(_POSSIBLE.fullmatch(word) and not is_other)


# Which host a file is of, by its name or its folder's: `node01/dmesg.txt`, `gpu-17.ibstat.txt`.


# What such files are called after, beside the host: the tool, the ending, which of two it is.
_WORDS = re.compile(
    r"dmesg|ps|rocm|kern(?:el)?|syslog|messages|journal(?:ctl)?|nvidia|smi|query|q|ib|ibstat(?:us)?|ibv|"
    r"devinfo|ibdev2netdev|rdma|link|dcgmi?|diag|health|fabric|fabricmanager|manager|nv|imex|xid|"
    r"l|sinfo|scontrol|slurm|show|ethtool|perfquery|statistics?|stats|counters?|port|"
    r"performance|serial|console|describe|pod|d|t|"
    r"log|txt|out|gz|zst|xz|bz2|csv|json|stdin|before|after|first|second|later|prev(?:ious)?|old|new|boot|"
    r"\d{6,14}T?\d*Z?",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[^._\-]+")
_HOST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-.][A-Za-z0-9]+)*")
_LETTERED = re.compile(r"[A-Za-z]{2,}-[A-Za-z]")  # hosts that are lettered, not numbered


def hosts_of(paths: Sequence[Path]) -> dict[Path, str | None]:
    """Each file's host; None where neither its name nor its folder's is that of one."""
    named = {path: host_named(path.name) for path in paths}
    folders = {path.parent for path in paths if named[path] is None}
    of_folder = {folder: folder.resolve().name for folder in folders}
    # Several folders of host text are one a host; a single one may be called after the incident.
    several = len({path.parent for path in paths}) > 1
    return {
        path: host
        or (
            of_folder[path.parent]
            if (several and any(map(str.isdigit, of_folder[path.parent])))
            or NUMBERED.fullmatch(of_folder[path.parent])
            else None
        )
        for path, host in named.items()
    }


def is_word(part: str) -> bool:
    """Whether a part of a file's name is that of a tool, or of what it prints."""
    return _WORDS.fullmatch(part) is not None


def host_named(name: str) -> str | None:
    """The host that is left of a file's name without the words of tools at either end."""
    parts = list(_PARTS.finditer(name))
    while parts and _WORDS.fullmatch(parts[0][0]):
        parts.pop(0)
    while parts and _WORDS.fullmatch(parts[-1][0]):
        parts.pop()
    left = name[parts[0].start() : parts[-1].end()] if parts else ""
    is_host = _HOST.fullmatch(left) and any(map(str.isdigit, left))
    return left if is_host or _LETTERED.fullmatch(left) else None
