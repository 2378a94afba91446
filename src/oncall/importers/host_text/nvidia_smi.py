"""What `nvidia-smi` prints: `-q`, its table, `nvlink -s`, `dmon`, `pmon`, `--query-gpu=...`.

A state (a row that waits for its remapping, a GPU that is lost) is an event at the instant of the
snapshot; counters become readings, and only two of them show what grew.
"""

from __future__ import annotations

import re

from oncall.evidence.codes.pci_addresses import pci_address
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.nvidia_smi_query import read_query
from oncall.importers.host_text.nvidia_smi_samples import csv_columns, read_csv, read_monitor
from oncall.importers.host_text.page import MOST_GPUS, NVIDIA_SMI, Page, mib, number, whole
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.recognisers.order import NEEDLES

_TABLE = re.compile(
    r"\|\s+(\d+)\s++(\S++(?:\s++\S++)*?)\s++(?:On|Off|N/A)\s++\|\s*([0-9A-Fa-f:.]{10,16})\s"
)
_SECOND = re.compile(
    r"\|\s*\S+\s+(?P<temp>\d+)C?\s+\S+\s+(?P<power>[\d.]+|N/A|ERR!|\[.*?\])W?\s*/"
    r"\s*(?P<limit>[\d.]+|N/A|ERR!)W?\s*\|"
    r"\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<busy>\d+)%"
)
_LOST = re.compile(
    r"Unable to determine the device handle for (?i:GPU) ?(?:\d{1,3}: )?(?P<pci>[0-9A-Fa-f:.]+):|"
    r"(?:GPU|gpu) ?(?P<other>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]+)?:? ?(?:GPU )?is lost"
)
# What it prints instead of any GPU.
_FAILURES = (
    ("gpus_absent", re.compile(r"No devices were found\s*$")),
    ("driver_down", re.compile(r"NVIDIA-SMI has failed because it couldn't communicate with the")),
    ("driver_mismatch", re.compile(r"Failed to initialize NVML: Driver/library version mismatch")),
    ("driver_down", re.compile(r"Failed to initialize NVML: Driver Not Loaded")),
    ("nvml_failed", re.compile(r"Failed to initialize NVML: ")),
)
# `nvidia-smi -L`
_LISTED = re.compile(r"GPU (?P<index>\d{1,4}): (?P<model>\S.*?) \(UUID: GPU-[\w-]+\)")
# Below it, `nvidia-smi nvlink -s`: a rate only of links that are up.
_NVLINK = re.compile(r"\s*Link \d+: (?P<up>[\d.]+ GB/s)?")
_NO_NVLINK = re.compile(r"NVML: Unable to retrieve N[Vv][Ll]ink information as all links are in")
# Lines of the table and of `-q`, by how they begin.
_OF_FORMAT = re.compile(
    r"[|+]|==+|GPU [0-9A-Fa-f]{8}:|[A-Z][\w ]{1,40} : | +[A-Z]|[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d "
)
# `dmon` and `pmon`: two lines of headings, again and again, and samples.
_MONITOR = re.compile(
    r"# ?(?:Date +Time +)?gpu +(?:pwr|pid|sm|mclk|fb|pviol|sbecc|rxpci|gtemp)\b.*\n# ?"
)
_SAMPLE = re.compile(
    r" *(?:\d{8} +\d\d:\d\d:\d\d +)?\d{1,4}(?: +[\w.-]+)+ *$|# ?(?:gpu|Idx|Date|YYYY)"
)
_LEAST_SHARE = 0.5  # of the lines, for the text to be one of nvidia-smi


def recognises(head: str) -> bool:
    """Whether it begins as one of these does, and goes on so: jobs print a table first, too."""
    lines = [line for line in files.lines(head) if line.strip()]
    heading = lines[0] if lines else ""
    commas = heading.count(",") if csv_columns(heading) else -1
    others = [
        line
        for line in lines
        if not (
            _OF_FORMAT.match(line)
            or _SAMPLE.match(line)
            or _LOST.match(line)
            or _LISTED.match(line)
            or _NVLINK.match(line)
            or _NO_NVLINK.match(line)
            or _failure(line)
            or line.startswith("NVML library version")
            or line.count(",") == commas
        )
    ]
    begins = (
        commas > 0
        or _MONITOR.match(head) is not None
        or any(map(_LOST.match, lines))
        or any(map(_failure, lines))
        or _LISTED.match(heading) is not None
        or re.search(r"^\| NVIDIA-SMI |^Attached GPUs +:|^==+NVSMI LOG==+", head, re.MULTILINE)
        or (re.search(r"^GPU [0-9A-F]{8}:", head, re.MULTILINE) and "Product Name" in head)
    )
    return (
        bool(begins)
        and len(others) <= (1 - _LEAST_SHARE) * len(lines)
        and next(NEEDLES.find("\n".join(others).encode()), None) is None
    )


def read(lines: list[str], page: Page) -> None:
    """Add readings, devices and states of each GPU."""
    page.note = "nvidia-smi shows no broken GPU at its moment; its counters have no known start"
    for place, line in enumerate(metered(lines), start=1):
        if lost := _LOST.search(line):
            device = pci_address((lost["pci"] or lost["other"] or "").strip(":."))
            code = "gpu_lost" if "is lost" in line else "gpu_unreachable"
            page.event(NVIDIA_SMI, code, device, line.strip(), place)
        elif failure := _failure(line):
            page.event(NVIDIA_SMI, failure, None, line.strip(), place)
        elif listed := _LISTED.match(line):
            page.gpu(int(listed["index"]), model=listed["model"])
    if csv_columns(lines[0] if lines else ""):
        read_csv(lines, page)
    elif _MONITOR.match("\n".join(lines[:2])):
        read_monitor(lines, page)
    elif any(line.startswith("| NVIDIA-SMI ") for line in lines):
        _read_table(lines, page)
    elif any(_NVLINK.match(line) for line in lines):
        _read_nvlinks(lines, page)
    else:
        read_query(lines, page)


def _failure(line: str) -> str | None:
    """The code of what it prints where it shows no GPU at all."""
    return next((code for code, form in _FAILURES if form.match(line)), None)


def _read_nvlinks(lines: list[str], page: Page) -> None:
    """How many NVLinks of each GPU are up; of one without any it prints no list."""
    up: dict[int, int] = {}
    for line in lines:
        if listed := _LISTED.match(line):
            gpu = int(listed["index"])
        elif up_or_not := _NVLINK.match(line) or _NO_NVLINK.match(line):
            up[gpu] = up.get(gpu, 0) + bool(up_or_not.groupdict().get("up"))
    for gpu, count in list(up.items())[:MOST_GPUS]:
        page.add("gpus", gpu=gpu, nvlinks_up=count)


# ------------------------------------------------------------------------ the table


def _read_table(lines: list[str], page: Page) -> None:
    clock = Clock(page.at_ns)
    if lines:
        page.state(clock.syslog(re.sub(r" +", " ", lines[0].strip())))
    version = re.search(r"Driver Version: (\S+)", "\n".join(lines[:6]))
    for place, line in enumerate(lines[:-1], start=1):
        found = _TABLE.match(line)
        if found is None or int(found[1]) >= MOST_GPUS:
            continue
        index, pci = int(found[1]), pci_address(found[3])
        page.gpu(index, pci_bus=pci, model=found[2], firmware=version and version[1])
        below = lines[place]
        if "ERR!" in line or "ERR!" in below:
            text = f"GPU {index} ({found[3]}) shows ERR!: it does not answer"
            page.event(NVIDIA_SMI, "gpu_reset_required", pci, text, place)
        if second := _SECOND.match(below):
            page.add(
                "gpus",
                gpu=index,
                temp_c=number(second["temp"]),
                power_w=number(second["power"]),
                power_limit_w=number(second["limit"]),
                memory_used_bytes=mib(second["used"]),
                memory_bytes=mib(second["total"]),
                utilisation=int(second["busy"]) / 100,
                ecc_uncorrected=whole(line.rstrip("| \n").rpartition(" ")[2]),
            )
