"""What `nvidia-smi -q` prints: every value of each GPU below indented headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from oncall.evidence.codes.nvlink_errors import nvlink_domain
from oncall.evidence.codes.pci_addresses import pci_address
from oncall.evidence.codes.throttle_reasons import AS_PRINTED
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import MOST_GPUS, NVIDIA_SMI, Page, mib, number, whole
from oncall.importers.logs.clock import Clock

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*")
_NAME = re.compile(r"[A-Za-z][\w ()/.,+-]*")
_POWERS = ("Power Draw", "Instantaneous Power Draw", "Average Power Draw")
_LIMITS = ("Enforced Power Limit", "Current Power Limit", "Power Limit")
_CURRENT = ("Current", "Device Current")
_Values = Mapping[str, str]


def read_query(lines: list[str], page: Page) -> None:
    clock = Clock(page.at_ns)
    for line in lines[:20]:
        if line.startswith("Timestamp"):
            page.state(clock.syslog(line.partition(":")[2].strip()))
    sections = list(_sections(lines))[:MOST_GPUS]
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
    serial = values.get("Serial Number")
    about = {"pci_bus": pci, "model": values.get("Product Name")}
    about["serial"] = None if serial in ("N/A", "0") else serial
    page.gpu(index, **about, firmware=driver, nvlink_domain=domain)
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
        memory_used_bytes=mib(values.get("FB Memory Usage/Used")),
        memory_bytes=mib(values.get("FB Memory Usage/Total")),
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
            page.event(NVIDIA_SMI, code, pci_address(address), text, places[[*below][-1]])


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
