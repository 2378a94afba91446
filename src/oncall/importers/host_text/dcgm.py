"""What DCGM prints: `dcgmi diag` and `dcgmi health --check`. Only failures are events: a test that
passed says that the GPU was sound then, not that it was while the job ran."""

from __future__ import annotations

import re

from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page

_HEADING = re.compile(
    r"^\| Diagnostic +\| Result|^\| Overall Health|^Successfully ran diagnostic|"
    r"^\| Health Monitor Report|^\| +NvLink Link Status +\|",
    re.MULTILINE,
)
_ROW = re.compile(r"\|\s*+(?P<what>[^|]*?)\s*+\|\s*+(?P<result>[^|]*?)\s*+\|")
_GPU = re.compile(r"GPU(?: ID)?:? ?(\d{1,3})\b")
# `dcgmi nvlink --link-status`: a letter for each link, below the GPU.
_OF_LINKS = re.compile(r"\s*gpuId (?P<gpu>\d{1,4}):")
_LINKS = re.compile(r"\s*(?P<links>[UDX_](?: [UDX_]){0,63})\s*$")
_DETAIL = re.compile(r"Warning|Error|GPU(?: ID)?:? ?\d*$|$")  # `GPU Memory` is a test
_BAD = re.compile(r"\bFail(?:ure|ed)?\b")


def recognises(head: str) -> bool:
    """Whether it is one of DCGM's tables."""
    return bool(_HEADING.search(head))


def read(lines: list[str], page: Page) -> None:
    """Add an event for each failure, with its GPU if a line names it: the row of a test says that
    it failed, those below it say on which GPU and why."""
    page.note = "DCGM reports no failure of the moment when it was run"
    test, linked = "", None
    unnamed = None  # a failure whose GPU no row has named so far
    for place, line in enumerate(metered(lines), start=1):
        row = _ROW.match(line)
        if row is None:
            if (links := _LINKS.match(line)) and linked:
                up = links["links"].count("U")
                page.add("gpus", gpu=int(linked["gpu"]), nvlinks_up=up)
                if down := links["links"].count("D"):
                    text = f"{down} links of GPU {linked['gpu']} are down, {up} are up"
                    page.event("dcgm", "nvlinks_down", linked["gpu"], text, place)
            linked = _OF_LINKS.match(line)
            continue
        what, result = row["what"], row["result"]
        gpu = _GPU.search(what) or _GPU.search(result)
        is_detail = _DETAIL.match(what) is not None
        if not is_detail and unnamed is not None:
            _fail(page, None, *unnamed)
            unnamed = None
        test = test if is_detail else what
        if _BAD.search(result) and gpu is None:
            unnamed = (f"{test}: {result}", place)
        elif gpu and (_BAD.search(result) or unnamed is not None):
            _fail(page, gpu[1], f"{test}: {result}", place)
            unnamed = None
    if unnamed is not None:
        _fail(page, None, *unnamed)


def _fail(page: Page, gpu: str | None, text: str, place: int) -> None:
    page.event("dcgm", "dcgm_failed", gpu, text, place)
