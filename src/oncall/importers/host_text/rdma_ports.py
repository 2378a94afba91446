"""The state of RDMA ports: `ibstat`, `ibstatus`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`.

A port that is down is a state, and no fault by itself: many hosts have ports that nothing is
plugged into. It is one where the same port of other hosts, or the host's other ports, are up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from oncall.importers import files
from oncall.importers.bounds import metered
from oncall.importers.host_text.page import Page, number

_DEVICE = re.compile(
    r"CA '([\w.-]+)'|hca_id:\s*([\w.-]+)|Infiniband device '([\w.-]+)' port (\d+) status:"
)
_PORT = re.compile(r"\s*[Pp]ort:?\s*(\d+):?\s*")
_PAIR = re.compile(r"\s*([A-Za-z][\w ]*+)\s*:(.*)")
_LINK = re.compile(
    r"link (?P<nic>[\w.-]+)/(?P<port>\d+) (?:subnet_prefix [\w:]+ lid \d+ sm_lid \d+ lmc \d+ )?"
    r"state (?P<state>\w+)"
    r"(?: physical_state (?P<physical>\w+))?(?: netdev (?P<netdev>\S+))?"
)
_NETDEV = re.compile(
    r"(?P<nic>[\w.-]+) port (?P<port>\d+) ==> (?P<netdev>\S+) \((?P<state>Up|Down)\)"
)
_LANES_GBPS = re.compile(r"\s*(\d+(?:\.\d+)?) Gbps")
_MOST_PORTS = 4096


@dataclass
class _Port:
    nic: str
    number: int
    line: int
    said: dict[str, str]
    model: str | None = None
    firmware: str | None = None

    @property
    def state(self) -> str:
        """Such as active, down, initializing; empty where the text does not show it."""
        said = self.said.get("state", "")
        return re.sub(r"^\d+:|^PORT_|\(\d+\)$", "", said).strip().lower()

    @property
    def is_up(self) -> bool:
        return self.state in ("active", "up")

    @property
    def layer(self) -> str | None:
        """InfiniBand or Ethernet, if the text shows it."""
        return self.said.get("link layer") or self.said.get("link_layer")


def recognises(head: str) -> bool:
    """Whether the text has the heading of a device, or a line of a port."""
    lines = [line.strip() for line in files.lines(head)[:80]]
    return any(
        _DEVICE.match(line) or _LINK.fullmatch(line) or _NETDEV.fullmatch(line) for line in lines
    )


def read(lines: list[str], page: Page) -> None:
    """Add each port to `nics`, its device to `devices`, and an event for one that is down."""
    page.note = "every RDMA port was up at the moment of the snapshot"
    ports = [port for port in _ports(lines) if port.state]
    of_nic = Counter(port.nic for port in ports)
    layers = Counter(port.layer for port in ports if port.layer)
    common = layers.most_common(1)[0][0] if layers else None
    rates = Counter(_rate(port.said) for port in ports if port.is_up)
    for port in ports:
        state, is_up = port.state, port.is_up
        if not is_up and port.layer not in (None, common):
            continue  # an Ethernet port for management beside InfiniBand is not the job's
        page.add(
            "nics",
            nic=port.nic,
            port=port.number,
            link_up=is_up,
            rate_bytes_per_s=_rate(port.said) if is_up else None,
        )
        page.add(
            "devices",
            kind="nic",
            device=port.nic,
            model=port.model,
            firmware=port.firmware,
            interface=port.said.get("netdev"),
        )
        if not is_up:
            physical = port.said.get("physical state") or port.said.get("phys_state") or ""
            is_init = state in ("initializing", "init", "armed")
            text = f"{port.nic} port {port.number}: state {state}{physical and f', {physical}'}"
            text += _rates(_rate(port.said), rates.most_common(1)[0][0] if rates else None)
            code = "port_init" if is_init else "port_down"
            device = f"{port.nic}/{port.number}" if of_nic[port.nic] > 1 else port.nic
            page.event("ibstat", code, device, text, port.line)


def _ports(lines: list[str]) -> list[_Port]:
    ports: list[_Port] = []
    nic, model, firmware = None, None, None
    for place, line in enumerate(metered(lines), start=1):
        if len(ports) >= _MOST_PORTS:
            break
        if found := _LINK.fullmatch(line.strip()) or _NETDEV.fullmatch(line.strip()):
            said = {
                name: value
                for name, value in found.groupdict().items()
                if value and name not in ("nic", "port")
            }
            if "physical" in said:
                said["phys_state"] = said.pop("physical")
            ports.append(_Port(found["nic"], int(found["port"]) % 256, place, said))
        elif found := _DEVICE.match(line.strip()):
            nic, model, firmware = found[1] or found[2] or found[3], None, None
            if found[4]:
                ports.append(_Port(nic, int(found[4]) % 256, place, {}))
        elif nic and (found := _PORT.fullmatch(line)):
            ports.append(_Port(nic, int(found[1]) % 256, place, {}, model, firmware))
        elif nic and (found := _PAIR.fullmatch(line)):
            name, value = found[1].rstrip().lower(), found[2].strip()
            if name in ("ca type", "board_id", "vendor_part_id") and model is None:
                model = value
            elif name in ("firmware version", "fw_ver"):
                firmware = value
            elif ports and ports[-1].nic == nic:
                if name == "state":
                    ports[-1].line = place
                ports[-1].said.setdefault(name, value)
    return ports


def _rates(rate: int | None, others: int | None) -> str:
    """`, 10 Gb/s; the others run at 400 Gb/s`"""
    own = f", {rate * 8 / 1e9:g} Gb/s" if rate else ""
    return own + (f"; the others run at {others * 8 / 1e9:g} Gb/s" if others else "")


def _rate(said: dict[str, str]) -> int | None:
    """Bytes a second: ibstat's `Rate: 400`, ibstatus' `400 Gb/sec (4X NDR)`, or lanes by speed."""
    gigabits = number(said.get("rate"))
    lane, width = _LANES_GBPS.match(said.get("active_speed", "")), number(said.get("active_width"))
    if gigabits is None and lane and width:
        gigabits = float(lane[1]) * width
    return int(gigabits * 1e9 / 8) if gigabits and 0 < gigabits < 1e5 else None
