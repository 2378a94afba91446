"""What `rocm-smi` prints without options: a row for each AMD GPU.

Device  Node  IDs              Temp    Power  Partitions   SCLK     MCLK    ...  PwrCap  VRAM%  GPU%
0       2     0x74a1,   50354  60.0°C  498.0W NPS1, SPX, 0 1402Mhz  900Mhz  ...  500.0W  88%    100%
"""

from __future__ import annotations

import re

from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import MOST_GPUS, Page

_HEADING = re.compile(r"= (?:ROCm System Management Interface|Concise Info) =+\s*$", re.MULTILINE)
_COLUMNS = re.compile(r"(?:GPU|Device) .*\bPwrCap\b")
_GPU = re.compile(r"(?P<index>\d{1,4})\s")
_MODEL = re.compile(r"\b0x[0-9a-f]{4,6}\b")
_VALUE = re.compile(r"(?<!\S)(?P<value>\d{1,7}(?:\.\d{1,3})?)(?P<unit>W|Mhz|°?[Cc]|%)(?!\S)")


def recognises(head: str) -> bool:
    """Whether it has the heading of rocm-smi, and its table."""
    return bool(_HEADING.search(head)) and any(map(_COLUMNS.match, files.lines(head)))


def read(lines: list[str], page: Page) -> None:
    """Add a reading of each GPU. Versions differ in what stands between; units tell the columns:
    power and its cap in watts, the clocks of the processor and of the memory, the load last."""
    page.note = "rocm-smi shows the GPUs of one moment"
    is_table = False
    for line in metered(lines):
        is_table = is_table or _COLUMNS.match(line) is not None
        row = _GPU.match(line) if is_table else None
        if row is None or int(row["index"]) >= MOST_GPUS:
            continue
        values: dict[str, list[float]] = {}
        for found in _VALUE.finditer(line):
            values.setdefault(found["unit"].lower(), []).append(float(found["value"]))
        watts, clocks, shares = (values.get(unit, []) for unit in ("w", "mhz", "%"))
        celsius = values.get("°c", values.get("c", []))
        page.add(
            "gpus",
            gpu=int(row["index"]),
            temp_c=celsius[0] if celsius else None,
            power_w=watts[0] if len(watts) > 1 else None,
            power_limit_w=watts[-1] if watts else None,
            sm_clock_mhz=int(clocks[0]) if len(clocks) > 1 else None,
            utilisation=shares[-1] / 100 if shares else None,
        )
        model = _MODEL.search(line)
        page.gpu(int(row["index"]), model=model and model[0])
