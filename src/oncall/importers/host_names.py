"""Which words name a host, in names of files and in headings."""

from __future__ import annotations

import re

NUMBERED = re.compile(
    r"(?:node|host|gpu|worker|cn|gn|ip|dgx|hgx|trn|n|c|g|h|r\d+)[-_]?\d[\w.-]*", re.IGNORECASE
)
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
# A GPU's model, which is named as hosts are.
_MODEL = re.compile(r"h(?:20|100|200|800)(?:[-_]?(?:\d*gb|sxm\d?|pcie|nvl))*", re.IGNORECASE)
_POSSIBLE = re.compile(r"[A-Za-z][\w-]*\d[\w.-]*|[a-z][\w-]*-[\w.-]+")
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
