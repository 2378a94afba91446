"""The ticket for a maker: which part, what it said and counted; none where no part is blamed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncall.core.diagnosis import Blame, Claim, Coverage, Diagnosis, Finding, Step
from oncall.core.errors import UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.render.text.vendor import vendor_ticket

from ..findings import finding

XID = "NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."


@pytest.fixture
def incident() -> Iterator[Incident]:
    """GPU 1 and NIC mlx5_1 of gpu017: read twice, an Xid in between; GPU 0 beside it."""
    with Incident.empty() as one:
        at = {"node": ["gpu017"] * 3, "at_ns": [1 * NS_PER_S] * 3}
        one.append(
            "devices",
            at
            | {
                "kind": ["gpu", "gpu", "nic"],
                "device": ["0", "1", "mlx5_1"],
                "model": ["H100", "H100", "CX7"],
                "pci_bus": ["0000:18:00.0", "0000:9b:00.0", "0000:41:00.0"],
                "serial": ["111", "222", None],
                "firmware": ["570", "570", "28.39"],
                "interface": [None, None, "ens1"],
            },
        )
        one.append(
            "gpus",
            {
                "node": ["gpu017"] * 3,
                "at_ns": [1 * NS_PER_S, 60 * NS_PER_S, 60 * NS_PER_S],
                "gpu": [1, 1, 0],
                "ecc_uncorrected": [0, 27, 5],
                "pcie_width": [16, 16, 16],
            },
        )
        one.append(
            "host_events",
            {
                "node": ["gpu017"] * 2,
                "at_ns": [30 * NS_PER_S] * 2,
                "source": ["kernel"] * 2,
                "code": ["xid_79", "link_down"],
                "device": ["0000:9b:00.0", "ens1"],
                "text": [XID, "ens1: Link is Down"],
            },
        )
        yield one


def blamed(on: str, **where: object) -> Diagnosis:
    claim = Claim("event", on=on)  # type: ignore[arg-type]
    blame = (Blame("rank", {"rank": 9, "node": "gpu017", **where}),)
    story = (Step("", "yes", "It fell off the bus.", "", 1),)
    return diagnosis(finding(claim=claim, blame=blame, story=story, at_ns=30 * NS_PER_S))


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis("llama", 0, 60 * NS_PER_S, Coverage(1, 1, 2, 2), findings)


@pytest.mark.parametrize("gpu", [1, "0000:9b:00.0"])
def test_a_gpu_with_its_serial_number_its_xid_and_what_it_counted(
    incident: Incident, gpu: object
) -> None:
    ticket = vendor_ticket(incident, blamed("gpu", gpu=gpu, nic="mlx5_1"))
    verdict, said, sure, *_ = ticket.splitlines()
    assert verdict == "Not entered: rank 9 on gpu017"
    assert said == "It fell off the bus."
    assert sure.startswith("t = 30.000 s, confidence 90 %")
    assert "Part: GPU 1 of gpu017" in ticket
    assert "serial number  222\n" in ticket
    assert "PCI address    0000:9b:00.0\n" in ticket
    assert XID in ticket
    assert "Link is Down" not in ticket
    assert "ecc_uncorrected                     0               27\n" in ticket
    assert "unchanged: pcie_width 16\n" in ticket
    assert "ssh gpu017 sudo nvidia-bug-report.sh\n" in ticket
    assert "ssh gpu017 dcgmi diag -r 3\n" in ticket


def test_a_gpu_of_another_maker_has_no_commands_of_nvidia(incident: Incident) -> None:
    incident.con.execute("UPDATE devices SET model = '0x74a1' WHERE kind = 'gpu'")
    ticket = vendor_ticket(incident, blamed("gpu", gpu=1))
    assert "lspci -vvv -s 0000:9b:00.0" in ticket and "nvidia" not in ticket


def test_a_nic_has_the_commands_of_its_interface(incident: Incident) -> None:
    ticket = vendor_ticket(incident, blamed("nic", gpu=1, nic="mlx5_1"))
    assert "Part: NIC mlx5_1 of gpu017" in ticket
    assert "serial number  not recorded\n" in ticket
    assert "ens1: Link is Down" in ticket
    assert "No reading of it was recorded." in ticket
    assert "ssh gpu017 ethtool -m ens1\n" in ticket


def test_a_part_of_a_host_that_no_line_names_is_blamed_all_the_same(incident: Incident) -> None:
    """As a kernel's log that was saved without the host's name."""
    said = {"source": ["kernel"], "code": ["xid_79"], "device": ["0000:9b:00.0"]}
    incident.append("host_events", said | {"text": ["it fell off the bus"]})
    ticket = vendor_ticket(incident, blamed("gpu", gpu="0000:9b:00.0", node=None))
    assert "Part: GPU of a host that is not recorded\n" in ticket
    assert "time unknown  it fell off the bus\n" in ticket
    assert XID not in ticket
    assert "ssh NODE sudo nvidia-bug-report.sh\n" in ticket


def test_where_no_part_is_blamed_there_is_no_ticket(incident: Incident) -> None:
    with pytest.raises(UsageError, match="no GPU or NIC is blamed"):
        vendor_ticket(incident, diagnosis(finding(claim=Claim("effect", on="rank"))))
