# ruff: noqa: E501 - lines as the driver prints them
"""Errors of NVLinks: what the text says is fatal, on which link, and which of a domain's is the root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oncall.core.diagnosis import Diagnosis, Finding
from oncall.evidence.incident import Incident
from oncall.importers.detect import load
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose

LINE = "[Thu Feb 12 08:{m:02d}:{s:02d} 2026] NVRM: Xid (PCI:{pci}): {said}\n"
SWITCH = (
    "[Thu Feb 12 08:{m:02d}:{s:02d} 2026] nvidia-nvswitch2: SXid (PCI:0000:{pci}:00.0): {said}\n"
)
FATAL = "149, NETIR_LINK_EVT  Fatal   XC0 i0 Link {link:02d} ({why} 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
OWN, PEER = "0x002425c6", "0x020425c6"  # why the link went down: bits 20 to 25
NONFATAL = "145, RLW_SRC_TRACK Nonfatal XC1 i0 Link {link:02d} (0x04086ac2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)"
NVLINK = "74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link {link}({words})"
FABRIC = """
==============NVSMI LOG==============

Timestamp                                 : Thu Feb 12 08:00:00 2026
Driver Version                            : 575.57.08
Attached GPUs                             : 1

GPU 00000008:01:00.0
    Product Name                          : NVIDIA GB200
    Fabric
        State                             : Completed
        Status                            : Success
        CliqueId                          : {clique}
        ClusterUUID                       : 5f1d0c3a-9e27-4b86-a1c4-77d0b2e9f310
"""
MNNVL = (
    "{node}:{pid}:{pid} [0] NCCL INFO MNNVL busId 0x801000 fabric UUID "
    "864b279e3a0c1d5f.10f3e9b2d077c4a1 cliqueId 0x{clique:x} state 3 healthMask 0x0\n"
)


def xid(said: str, pci: str = "0008:01:00", m: int = 14, s: int = 7) -> str:
    return LINE.format(said=said, pci=pci, m=m, s=s)


def sxid(said: str, pci: str = "c4", m: int = 14, s: int = 7) -> str:
    return SWITCH.format(said=said, pci=pci, m=m, s=s)


def words(*bits: tuple[int, int]) -> str:
    """The seven registers of an Xid 74 with these bits: of the word, 1 first, and in it."""
    values = [0] * 7
    for word, bit in bits:
        values[word - 1] |= 1 << bit
    return ", ".join(map(hex, values))


def diagnosed(folder: Path, files: Mapping[str, str]) -> Diagnosis:
    for name, text in files.items():
        path = folder / "case" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    with Incident.empty() as incident:
        load([folder / "case"], incident)
        return diagnose(incident, load_rulebooks([shipped_folder()]))


def place(finding: Finding) -> str:
    where = finding.blame[0].where
    return f"{where['node']} {where.get('gpu') or 'switch'}"


def roots(found: Diagnosis) -> dict[str, int]:
    """Where each root is, and how many findings follow from it."""
    return {
        place(one): sum(each.explained_by == one.id for each in found.findings)
        for one in found.findings
        if one.explained_by is None
    }


def victims(node: str, *places: str) -> dict[str, str]:
    """The kernel log of a host whose GPUs report only that their peer is gone."""
    lines = [xid(NONFATAL.format(link=n + 3), pci) for n, pci in enumerate(places)]
    return {f"{node}/dmesg.txt": "".join(lines)}


def test_the_fatal_error_of_a_domain_is_the_root_wherever_its_line_is(tmp_path: Path) -> None:
    """Four hosts of one rack in the same second: eight GPUs lost an answer, one lost its link."""
    lost = xid(FATAL.format(link=14, why=OWN), "0019:01:00")
    files = {
        **victims("tray3", "0008:01:00", "0009:01:00", "0018:01:00"),
        **victims("tray5", "0008:01:00", "0018:01:00", "0019:01:00"),
        **victims("tray9", "0009:01:00", "0018:01:00"),
        "tray6/dmesg.txt": xid(NONFATAL.format(link=2)) + lost,
    }
    found = diagnosed(tmp_path, files)
    assert roots(found) == {"tray6 0019:01:00.0": 9}
    root, *others = found.findings
    assert "Xid 149, fatal, link 14" in root.story[-1].say
    assert "reset all" in root.next[0]
    assert {one.verdict for one in others} == {"NVLINK_ERROR"}


def test_errors_that_are_not_fatal_ask_for_no_reset(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, victims("tray3", "0008:01:00", "0009:01:00"))
    (root,) = [one for one in found.findings if one.explained_by is None]
    assert (root.verdict, root.severity) == ("NVLINK_ERROR", "warning")
    assert not any("Drain" in one or "reset all" in one for one in root.next)


def test_two_domains_in_one_second_are_two_causes(tmp_path: Path) -> None:
    """Where cliques are recorded, by nvidia-smi or by NCCL, hosts of two are no domain."""
    lost = xid(FATAL.format(link=5, why=OWN), "0018:01:00")
    files = {
        "n01/dmesg.txt": lost,
        "n02/dmesg.txt": xid(NONFATAL.format(link=5)),
        "n31/dmesg.txt": lost,
        "n01/nvidia-smi-q.txt": FABRIC.format(clique=4),
        "n02/nvidia-smi-q.txt": FABRIC.format(clique=4),
        "job.log": MNNVL.format(node="n31", pid=77, clique=5)
        + MNNVL.format(node="n01", pid=78, clique=4),
    }
    assert roots(diagnosed(tmp_path, files)) == {"n01 0018:01:00.0": 1, "n31 0018:01:00.0": 0}


def test_errors_minutes_apart_are_two_causes(tmp_path: Path) -> None:
    lost = FATAL.format(link=5, why=OWN)
    files = {"n01/dmesg.txt": xid(lost, "0008:01:00", m=2) + xid(lost, "0009:01:00", m=44)}
    assert len(roots(diagnosed(tmp_path, files))) == 2


def test_who_says_that_the_other_end_went_down_follows(tmp_path: Path) -> None:
    files = {
        "n01/dmesg.txt": xid(FATAL.format(link=1, why=PEER)),
        "n02/dmesg.txt": xid(FATAL.format(link=16, why=OWN)),
    }
    assert roots(diagnosed(tmp_path, files)) == {"n02 0008:01:00.0": 1}


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        ([(NVLINK, "1b"), (NVLINK, "43"), (None, "c4")], "n1 switch"),
        ([(NVLINK, "43"), (None, "c4")], "n1 0000:43:00.0"),
        (
            [(None, "c4"), (NVLINK, "1b"), ("79, GPU has fallen off the bus.", "52")],
            "n1 0000:52:00.0",
        ),
        ([(NVLINK, "1b"), ("119, Timeout waiting for RPC from GSP!", "52")], "n1 0000:52:00.0"),
    ],
    ids=["links of several GPUs", "links of one", "a lost GPU", "a GPU's own fault"],
)
def test_a_link_fails_for_what_is_at_its_end(
    lines: list[tuple[str | None, str]], root: str, tmp_path: Path
) -> None:
    """Of a switch and the GPUs at it, in either order of their lines."""
    said = [
        sxid("20034, Fatal, Link 44 LTSSM Fault Up", pci)
        if form is None
        else xid(form.format(link=2, words=words((1, 16))), f"0000:{pci}:00")
        for form, pci in lines
    ]
    for name, text in (("a", said), ("b", said[::-1])):
        found = roots(diagnosed(tmp_path / name, {"n1/dmesg.txt": "".join(text)}))
        assert found == {root: len(lines) - 1}


def test_a_gpus_own_fault_comes_before_its_links(tmp_path: Path) -> None:
    link = NVLINK.format(link=2, words=words((1, 16)))
    own = "119, pid=5, name=python3, Timeout after 6s of waiting for RPC response from GPU1 GSP!"
    lines = [xid(link, "0000:43:00"), xid(link, "0000:52:00"), xid(own, "0000:52:00")]
    found = diagnosed(tmp_path, {"n1/dmesg.txt": "".join(lines)})
    assert roots(found) == {"n1 0000:52:00.0": 1}
    assert "Xid 119" in found.findings[0].story[-1].say


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (FATAL.format(link=8, why=OWN), ("xid_149_fatal", True, 8)),
        ("149, NETIR_LINK_EVT Fatal XC 1 i 2 Link 01 [0x0000000a]", ("xid_149_fatal", True, 1)),
        ("149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0)", ("xid_149_fatal", True, None)),
        (FATAL.format(link=8, why=PEER), ("xid_149_peer", None, 8)),
        (NONFATAL.format(link=12), ("xid_145_nonfatal", False, 12)),
        (
            "144, pid=7, name=python3, SAW_MVB Nonfatal XC0 i0 Link 00 (0x1 0x8)",
            ("xid_144_nonfatal", False, 0),
        ),
        (NVLINK.format(link=4, words=words((1, 4))), ("xid_74_parity", True, 4)),
        (NVLINK.format(link=4, words=words((3, 6), (1, 22))), ("xid_74_parity", True, 4)),
        (NVLINK.format(link=4, words=words((5, 28))), ("xid_74_parity", True, 4)),
        (NVLINK.format(link=11, words=words((1, 16))), ("xid_74_contact", True, 11)),
        (NVLINK.format(link=11, words=words((1, 21), (1, 20))), ("xid_74_signal", True, 11)),
        (NVLINK.format(link=11, words=words((4, 16), (1, 0))), ("xid_74_secondary", None, 11)),
        (NVLINK.format(link=11, words=words((5, 20))), ("xid_74_corrected", False, 11)),
        (NVLINK.format(link=11, words=words((1, 30))), ("xid_74_ignored", False, 11)),
        (NVLINK.format(link=11, words=words((2, 3), (7, 16))), ("xid_74_fatal", True, 11)),
        ("74, NVLink: fatal error detected on link 2", ("xid_74_fatal", True, 2)),
        ("79, pid=7, GPU has fallen off the bus.", ("xid_79", True, None)),
        ("145, RLW", ("xid_145", None, None)),
        ("48, DBE: An uncorrectable double bit error", ("xid_48", None, None)),
    ],
)
def test_what_a_line_says_beside_its_number(
    said: str, expected: tuple[Any, ...], tmp_path: Path, incident: Incident
) -> None:
    (tmp_path / "dmesg.txt").write_text(xid(said))
    load([tmp_path / "dmesg.txt"], incident)
    incident.require(["node_events"])
    found = incident.con.execute("SELECT meant, fatal, nvlink FROM node_events").fetchall()
    assert found == [expected]
