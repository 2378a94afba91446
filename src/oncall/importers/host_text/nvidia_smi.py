"""What `nvidia-smi` prints: `-q`, its table, `nvlink -s`, `dmon`, `pmon`, `--query-gpu=...`.

A state (a row that waits for its remapping, a GPU that is lost) is an event at the instant of the
snapshot; counters become readings, and only two of them show what grew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from oncall.core.errors import Unreadable
from oncall.evidence.codes.nvlink_errors import nvlink_domain
from oncall.evidence.codes.pci_addresses import pci_address
from oncall.evidence.codes.throttle_reasons import AS_PRINTED
from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page, number, whole
from oncall.importers.logs.clock import Clock
from oncall.importers.logs.recognisers.order import NEEDLES

SOURCE = "nvidia-smi"
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")
_NAME = re.compile(r"[A-Za-z][\w ()/.,+-]*")
_TABLE = re.compile(r"\|\s+(\d+)\s+(\S.*?)\s+(?:On|Off|N/A)\s+\|\s*([0-9A-Fa-f:.]{10,16})\s")
_SECOND = re.compile(
    r"\|\s*\S+\s+(?P<temp>\d+)C?\s+\S+\s+(?P<power>[\d.]+|N/A|ERR!|\[.*?\])W?\s*/"
    r"\s*(?P<limit>[\d.]+|N/A|ERR!)W?\s*\|"
    r"\s*(?P<used>\d+)MiB\s*/\s*(?P<total>\d+)MiB\s*\|\s*(?P<busy>\d+)%"
)
_LOST = re.compile(
    r"Unable to determine the device handle for (?:GPU|gpu) ?(?P<pci>[0-9A-Fa-f:.]+):|"
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
_MIB = 1 << 20
_MOST_GPUS = 1024
_MOST_READINGS = 200_000
_POWERS = ("Power Draw", "Instantaneous Power Draw", "Average Power Draw")
_LIMITS = ("Enforced Power Limit", "Current Power Limit", "Power Limit")
_CURRENT = ("Current", "Device Current")
_Values = Mapping[str, str]


def recognises(head: str) -> bool:
    """Whether it begins as one of these does, and goes on so: jobs print a table first, too."""
    lines = [line for line in files.lines(head) if line.strip()]
    heading = lines[0] if lines else ""
    commas = heading.count(",") if _csv_columns(heading) else -1
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
            page.event(SOURCE, code, device, line.strip(), place)
        elif failure := _failure(line):
            page.event(SOURCE, failure, None, line.strip(), place)
        elif listed := _LISTED.match(line):
            _device(page, int(listed["index"]), None, listed["model"], None)
    if _csv_columns(lines[0] if lines else ""):
        _read_csv(lines, page)
    elif _MONITOR.match("\n".join(lines[:2])):
        _read_monitor(lines, page)
    elif any(line.startswith("| NVIDIA-SMI ") for line in lines):
        _read_table(lines, page)
    elif any(_NVLINK.match(line) for line in lines):
        _read_nvlinks(lines, page)
    else:
        _read_query(lines, page)


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
    for gpu, count in list(up.items())[:_MOST_GPUS]:
        page.add("gpus", gpu=gpu, nvlinks_up=count)


# ------------------------------------------------------------------- nvidia-smi -q


def _read_query(lines: list[str], page: Page) -> None:
    clock = Clock(page.at_ns)
    for line in lines[:20]:
        if line.startswith("Timestamp"):
            page.state(clock.syslog(line.partition(":")[2].strip()))
    sections = list(_sections(lines))[:_MOST_GPUS]
    driver = _line_value(lines, "Driver Version")
    attached = whole(_line_value(lines, "Attached GPUs"))
    for order, (address, values, places) in enumerate(sections):
        minor = whole(values.get("Minor Number"))
        known = minor if minor is not None else order if attached in (None, len(sections)) else None
        _states(page, address, values, places)
        if known is not None:  # of an excerpt nobody knows which GPU it is
            _gpu(page, known, pci_address(address), values, driver)


def _line_value(lines: list[str], name: str) -> str | None:
    found = (line for line in lines[:20] if line.startswith(name))
    return next((line.partition(":")[2].strip() for line in found), None)


def _sections(lines: list[str]) -> Iterator[tuple[str, dict[str, str], dict[str, int]]]:
    """Each GPU with its values by their way through the indented headings (`ECC Errors/Volatile/
    DRAM Uncorrectable`), and the lines they are in."""
    address = None
    values: dict[str, str] = {}
    places: dict[str, int] = {}
    above: list[tuple[int, str]] = []
    for place, line in enumerate(metered(lines), start=1):
        if found := _GPU.fullmatch(line):
            if address is not None:
                yield address, values, places
            address, values, places, above = found[1], {}, {}, []
        elif address is not None and _NAME.fullmatch((pair := line.partition(" :"))[0].strip()):
            name, is_heading = pair[0].strip(), not pair[1]
            depth = len(line) - len(line.lstrip(" "))
            above = [one for one in above if one[0] < depth]
            way = "/".join([*(name for _, name in above), name])
            if is_heading:
                above.append((depth, name))
            elif way not in values:
                values[way], places[way] = pair[2].strip(), place
                above.append((depth, name))  # throttle reasons nest below a value
    if address is not None:
        yield address, values, places


def _gpu(page: Page, index: int, pci: str | None, values: _Values, driver: str | None) -> None:
    domain = nvlink_domain(values.get("Fabric/ClusterUUID"), values.get("Fabric/CliqueId"))
    _device(page, index, pci, values.get("Product Name"), driver, domain)
    ecc = "ECC Errors/Volatile/"
    newer = any(way.startswith("GPU Power Readings/") for way in values)
    power = "GPU Power Readings/" if newer else "Power Readings/"
    link = "PCI/GPU Link Info/"
    busy = number(_first(values, "Utilization/Gpu", "Utilization/GPU"))
    page.add(
        "gpus",
        gpu=index,
        sm_clock_mhz=whole(values.get("Clocks/SM")),
        sm_clock_max_mhz=whole(values.get("Max Clocks/SM")),
        power_w=number(_first(values, *(power + name for name in _POWERS))),
        power_limit_w=number(_first(values, *(power + name for name in _LIMITS))),
        temp_c=number(values.get("Temperature/GPU Current Temp")),
        utilisation=None if busy is None else busy / 100,
        throttle_reasons=_reasons(values),
        pcie_gen=whole(_first(values, *(f"{link}PCIe Generation/{name}" for name in _CURRENT))),
        pcie_gen_max=whole(values.get(f"{link}PCIe Generation/Max")),
        pcie_width=whole(values.get(f"{link}Link Width/Current")),
        pcie_width_max=whole(values.get(f"{link}Link Width/Max")),
        pcie_replays=whole(values.get("PCI/Replays Since Reset")),
        ecc_corrected=_sum(values, ecc, "Correctable", f"{ecc}Single Bit/Total"),
        ecc_uncorrected=_sum(values, ecc, "Uncorrectable", f"{ecc}Double Bit/Total"),
        remapped_rows=whole(values.get("Remapped Rows/Uncorrectable Error")),
        remap_failed=_yes(values.get("Remapped Rows/Remapping Failure Occurred")),
        memory_used_bytes=_mib(values.get("FB Memory Usage/Used")),
        memory_bytes=_mib(values.get("FB Memory Usage/Total")),
    )


def _states(page: Page, address: str, values: _Values, places: Mapping[str, int]) -> None:
    for way, bad, code in _STATES_OF_A_GPU:
        below = {one: said for one, said in values.items() if f"{one}/".startswith(f"{way}/")}
        said = ", ".join(
            f"{one.removeprefix(way).lstrip('/')}: {value}".removeprefix(": ")
            for one, value in below.items()
        )
        if below and bad.fullmatch(said):
            text = f"{way.replace('/', ': ')}: {said}"
            page.event(SOURCE, code, pci_address(address), text, places[[*below][-1]])


_YES = re.compile(r"Yes")
# By the way to a value, or to a heading: then all that stands below it.
_STATES_OF_A_GPU = (
    ("Remapped Rows/Pending", _YES, "remap_pending"),
    ("Remapped Rows/Remapping Failure Occurred", _YES, "remap_failed"),
    *(
        ("Retired Pages", re.compile(rf".{{0,40}}Double Bit ECC: {count}, Pend[\w ]*: Yes"), code)
        for count, code in ((r"[1-9]\d*", "pages_pending"), ("0", "retirement_pending"))
    ),
    ("GPU Reset Status/Reset Required", _YES, "gpu_reset_required"),
    ("GPU Recovery Action", re.compile(r"(?!None|N/A).+"), "gpu_reset_required"),
    ("Fabric/State", re.compile(r"In Progress|Not Started"), "fabric_not_ready"),
    ("Fabric/Status", re.compile(r"(?!Success|N/A).+"), "fabric_not_ready"),
)


def _reasons(values: _Values) -> int | None:
    """NVML's bits of the reasons that are active; None where none is listed."""
    listed = {
        way.rpartition("/")[2]: said
        for way, said in values.items()
        if way.startswith(("Clocks Event Reasons/", "Clocks Throttle Reasons/"))
    }
    bits = [bit for name, bit in AS_PRINTED.items() if listed.get(name) == "Active"]
    return sum(bits) if any(name in listed for name in AS_PRINTED) else None


def _first(values: _Values, *names: str) -> str | None:
    return next((values[name] for name in names if number(values.get(name)) is not None), None)


def _sum(values: _Values, prefix: str, ending: str, alone: str) -> int | None:
    parts = [
        whole(said)
        for way, said in values.items()
        if way.startswith(prefix) and re.fullmatch(rf"\w+ {ending}(?: \S+)?", way[len(prefix) :])
    ]
    known = [part for part in parts if part is not None]
    return sum(known) if known else whole(values.get(alone))


def _yes(said: str | None) -> bool | None:
    return {"Yes": True, "No": False}.get(said or "")


def _mib(said: str | None) -> int | None:
    count = whole(said)
    return None if count is None else count * _MIB


def _device(
    page: Page,
    index: int,
    pci: str | None,
    model: str | None,
    driver: str | None,
    domain: str | None = None,
) -> None:
    about = {"pci_bus": pci, "model": model, "firmware": driver, "nvlink_domain": domain}
    page.add("devices", kind="gpu", device=str(index), **about)


# ------------------------------------------------------------------------ the table


def _read_table(lines: list[str], page: Page) -> None:
    clock = Clock(page.at_ns)
    if lines:
        page.state(clock.syslog(re.sub(r" +", " ", lines[0].strip())))
    version = re.search(r"Driver Version: (\S+)", "\n".join(lines[:6]))
    for place, line in enumerate(lines[:-1], start=1):
        found = _TABLE.match(line)
        if found is None or int(found[1]) >= _MOST_GPUS:
            continue
        index, pci = int(found[1]), pci_address(found[3])
        _device(page, index, pci, found[2], version[1] if version else None)
        below = lines[place]
        if "ERR!" in line or "ERR!" in below:
            text = f"GPU {index} ({found[3]}) shows ERR!: it does not answer"
            page.event(SOURCE, "gpu_reset_required", pci, text, place)
        if second := _SECOND.match(below):
            page.add(
                "gpus",
                gpu=index,
                temp_c=number(second["temp"]),
                power_w=number(second["power"]),
                power_limit_w=number(second["limit"]),
                memory_used_bytes=_mib(second["used"]),
                memory_bytes=_mib(second["total"]),
                utilisation=int(second["busy"]) / 100,
                ecc_uncorrected=whole(line.rstrip("| \n").rpartition(" ")[2]),
            )


# ------------------------------------------------------------------- dmon and pmon

_Columns = Mapping[str, tuple[str, float, type]]  # by name: the column, its unit and type
_MONITORED: _Columns = {
    "pwr": ("power_w", 1, float),
    "gtemp": ("temp_c", 1, float),
    "sm": ("utilisation", 0.01, float),
    "pclk": ("sm_clock_mhz", 1, int),
    "fb": ("memory_used_bytes", _MIB, int),
}


def _measured(row: _Values, columns: _Columns) -> dict[str, Any]:
    values = {name: number(row.get(name)) for name in columns}
    known = {columns[name]: value for name, value in values.items() if value is not None}
    return {column: kind(value * unit) for (column, unit, kind), value in known.items()}


def _read_monitor(lines: list[str], page: Page) -> None:
    """A row for each GPU and sample. Samples without a stamp are a second apart, as by default,
    and the last one is of when the file was written."""
    names: list[str] = []
    samples: list[tuple[int, int, dict[str, str]]] = []  # the look, the GPU, what it shows
    for line in lines:
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            names = [word.lower() for word in words] if "gpu" in words else names
        elif len(words) >= len(names) > 0 and len(samples) < _MOST_READINGS:
            row = dict(zip(names, words, strict=False))
            index = whole(row["gpu"])
            if index is not None and 0 <= index < _MOST_GPUS:
                again = "pid" not in row and bool(samples) and index <= samples[-1][1]
                samples.append((samples[-1][0] + again if samples else 0, index, row))
    for look, index, row in samples:
        at_ns = _csv_instant(f"{row.get('date')} {row.get('time')}", "%Y%m%d %H:%M:%S")
        page.stated_ns = at_ns or page.stated_ns
        found = _measured(row, _MONITORED)
        found["at_ns"] = at_ns or page.at_ns - (samples[-1][0] - look) * 10**9
        if "pviol" in row or "tviol" in row:
            power, heat = (number(row.get(name)) or 0 for name in ("pviol", "tviol"))
            found["throttle_reasons"] = 0x04 * (power > 0) | 0x20 * (heat > 0)
        page.add("gpus", gpu=index, **found)


# ------------------------------------------------------------- --query-gpu ... csv

_CSV: _Columns = {
    "utilization.gpu": ("utilisation", 0.01, float),
    "power.draw": ("power_w", 1, float),
    "power.limit": ("power_limit_w", 1, float),
    "temperature.gpu": ("temp_c", 1, float),
    "clocks.sm": ("sm_clock_mhz", 1, int),
    "clocks.current.sm": ("sm_clock_mhz", 1, int),
    "clocks.max.sm": ("sm_clock_max_mhz", 1, int),
    "memory.used": ("memory_used_bytes", _MIB, int),
    "memory.total": ("memory_bytes", _MIB, int),
    "pcie.link.gen.current": ("pcie_gen", 1, int),
    "pcie.link.gen.gpucurrent": ("pcie_gen", 1, int),
    "pcie.link.gen.max": ("pcie_gen_max", 1, int),
    "pcie.link.width.current": ("pcie_width", 1, int),
    "pcie.link.width.max": ("pcie_width_max", 1, int),
    "ecc.errors.corrected.volatile.total": ("ecc_corrected", 1, int),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", 1, int),
}


_REASON_COLUMN = re.compile(r"clocks_(?:event|throttle)_reasons\.(?P<name>\w+)")
_REASON_OF_COLUMN = {name.lower().replace(" ", "_"): bit for name, bit in AS_PRINTED.items()}


def _csv_columns(heading: str) -> list[str]:
    """The query's names in a heading; empty where it is none."""
    names = [name.strip().partition(" ")[0] for name in heading.split(",")]
    known = any(name in _CSV or _REASON_COLUMN.fullmatch(name) for name in names)
    return names if known and ("index" in names or "pci.bus_id" in names) else []


def _csv_reasons(row: _Values) -> int | None:
    """The bits of `clocks_event_reasons.active`, else of the columns of single reasons."""
    bits: int | None = None
    for column, said in row.items():
        found = _REASON_COLUMN.fullmatch(column)
        if found and found["name"] == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", said):
            return int(said, 16)
        if found and said in ("Active", "Not Active"):
            bits = (bits or 0) | (
                _REASON_OF_COLUMN.get(found["name"], 0) if said == "Active" else 0
            )
    return bits


def _read_csv(lines: list[str], page: Page) -> None:
    names = _csv_columns(lines[0])
    seen: dict[int, str] = {}
    indexes: dict[str, int] = {}
    for place, line in enumerate(lines[1:]):
        cells = line.split(",")
        if place >= _MOST_READINGS:
            raise Unreadable(f"no more than its first {_MOST_READINGS:,} readings are read")
        row = dict(zip(names, (cell.strip() for cell in cells), strict=False))
        index = whole(row.get("index"))
        if "index" not in row and (address := row.get("pci.bus_id")):
            index = indexes.setdefault(address, len(indexes))  # they are listed in this order
        if len(cells) != len(names) or index is None or not 0 <= index < _MOST_GPUS:
            continue
        at_ns = _csv_instant(row.get("timestamp"))
        page.stated_ns = at_ns or page.stated_ns
        found = _measured(row, _CSV) | ({} if at_ns is None else {"at_ns": at_ns})
        page.add("gpus", gpu=index, throttle_reasons=_csv_reasons(row), **found)
        if index not in seen:
            seen[index] = row.get("pci.bus_id", "")
            pci = pci_address(row.get("pci.bus_id") or row.get("gpu_bus_id") or "")
            _device(page, index, pci, row.get("name"), row.get("driver_version"))


def _csv_instant(text: str | None, form: str = "%Y/%m/%d %H:%M:%S.%f") -> int | None:
    """`2026/11/20 03:10:00.123`"""
    try:
        at = datetime.strptime(text or "", form).replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp() * 1000) * 10**6 if at.year >= 2000 else None
