# ruff: noqa: E501 - what tools print, column by column
"""What tools print of InfiniBand and Ethernet ports, as rows of the collectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.importers.host_text.host_files import reported

from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.39.1002
\tPort 1:
\t\tState: Active
\t\tPhysical state: LinkUp
\t\tRate: 400
CA 'mlx5_1'
\tCA type: MT4129
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 400
"""
DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.39.1002
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_DOWN (1)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
hca_id:\tmlx5_1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_ACTIVE (4)
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
"""
IBSTATUS = """Infiniband device 'mlx5_0' port 1 status:
\tstate:\t\t 4: ACTIVE
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
"""
LINKS = """link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1f0np0
link mlx5_1/1 state DOWN physical_state DISABLED
"""
LINKS_OF_INFINIBAND = """link mlx5_0/1 subnet_prefix fe80:0000:0000:0000 lid 13399 sm_lid 49151 lmc 0 state ACTIVE physical_state LINK_UP
link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 65535 sm_lid 0 lmc 0 state DOWN physical_state POLLING
"""
GBPS = 10**9 // 8


@pytest.mark.parametrize(
    ("text", "ports", "codes"),
    [
        (LINKS_OF_INFINIBAND, [("mlx5_0", True, None), ("mlx5_1", False, None)], ["port_down"]),
        (IBSTAT, [("mlx5_0", True, 400 * GBPS), ("mlx5_1", False, None)], ["port_init"]),
        (DEVINFO, [("mlx5_0", False, None), ("mlx5_1", True, 400 * GBPS)], ["port_down"]),
        (IBSTATUS, [("mlx5_0", True, 400 * GBPS)], []),
        (LINKS, [("mlx5_0", True, None), ("mlx5_1", False, None)], ["port_down"]),
        ("mlx5_2 port 1 ==> ib2 (Down)\n", [("mlx5_2", False, None)], ["port_down"]),
    ],
)
def test_ports(
    tmp_path: Path, incident: Incident, text: str, ports: list[Any], codes: list[str]
) -> None:
    columns = "nic, link_up, rate_bytes_per_s"
    assert reported(incident, tmp_path / "ports.txt", text, columns, "nics") == ports
    assert [
        code for (code,) in incident.con.execute("SELECT code FROM host_events").fetchall()
    ] == codes


def ibstat(nic: str, number: int, state: str, physical: str, rate: int, layer: str) -> str:
    heading = f"CA '{nic}'\n\tCA type: MT4129\n\tNumber of ports: 2\n" if number == 1 else ""
    return heading + (
        f"\tPort {number}:\n\t\tState: {state}\n\t\tPhysical state: {physical}\n\t\tRate: {rate}\n"
        f"\t\tBase lid: 4\n\t\tSM lid: 1\n\t\tLink layer: {layer}\n"
    )


@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (("Active", "LinkUp", 400), []),
        (("Down", "Polling", 10), [("mlx5_2/1", "mlx5_2 port 1: state down, Polling, 10 Gb/s; the others run at 400 Gb/s")]),
        (("Initializing", "LinkUp", 400), [("mlx5_2/1", "mlx5_2 port 1: state initializing, LinkUp, 400 Gb/s; the others run at 400 Gb/s")]),
    ],
)  # fmt: skip
def test_of_many_ports_the_one_that_should_be_up_is_named(
    tmp_path: Path, incident: Incident, bad: tuple[str, str, int], found: list[Any]
) -> None:
    """No second port is cabled, and a port for management is of another kind."""
    text = "".join(
        ibstat(f"mlx5_{n}", 1, *(bad if n == 2 else ("Active", "LinkUp", 400)), "InfiniBand")
        + ibstat(f"mlx5_{n}", 2, "Down", "Disabled", 10, "InfiniBand")
        for n in range(8)
    ) + ibstat("mlx5_bond_0", 1, "Down", "Disabled", 25, "Ethernet")
    (tmp_path / "gpu7.ibstat.txt").write_text(text)
    load([tmp_path], incident)
    answer = diagnose(incident, load_rulebooks([shipped_folder()]))
    links = [one for one in answer.faults if one.verdict == "LINK_DOWN"]
    assert [
        (one.blame[0].where["nic"], one.story[-1].say.split(": ", 2)[2].partition(" (")[0])
        for one in links
    ] == found
    assert [one.verdict for one in answer.faults] == ["LINK_DOWN"] * len(found)
