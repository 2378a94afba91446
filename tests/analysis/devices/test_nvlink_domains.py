"""Which hosts are one NVLink domain, and what a GPU's faults say of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncall.evidence.incident import Incident

S = 10**9
FATAL = "NVRM: Xid (PCI:0000:1b:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 06 (0x002425c6)"
NONFATAL = "NVRM: Xid (PCI:0000:1b:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link 06 (0x0 0x8)"
SAID = {"149": ("xid_149", FATAL), "145": ("xid_145", NONFATAL), "79": ("xid_79", "gone")}
Event = tuple[str | None, float | None, str]  # host, second, Xid


def domains(events: Sequence[Event], cliques: dict[str, str]) -> dict[str | None, str]:
    with Incident.empty() as incident:
        rows = [(node, None if at is None else int(at * S), *SAID[xid]) for node, at, xid in events]
        node, at_ns, code, text = map(list, zip(*rows, strict=True))
        incident.append("host_events", {"node": node, "at_ns": at_ns, "code": code, "text": text})
        if cliques:
            incident.append(
                "devices",
                {
                    "node": list(cliques),
                    "kind": ["gpu"] * len(cliques),
                    "device": ["0"] * len(cliques),
                    "nvlink_domain": list(cliques.values()),
                },
            )
        incident.require(["nvlink_domains"])
        return dict(incident.con.execute("SELECT node, domain FROM nvlink_domains").fetchall())


@pytest.mark.parametrize(
    ("events", "cliques", "together"),
    [
        ([("a", 10, "149"), ("b", 11, "145"), ("c", 12, "145")], {}, ["abc"]),
        ([("a", 10, "149"), ("b", 19, "145")], {}, ["a", "b"]),
        ([("a", 10, "149"), ("b", 10, "145")], {"a": "u/1", "b": "u/2"}, ["a", "b"]),
        ([("a", 10, "149"), ("b", 900, "145")], {"a": "u/1", "b": "u/1"}, ["ab"]),
        ([("a", 10, "149"), ("b", 10, "145")], {"a": "u/1"}, ["ab"]),
        ([("a", 10, "79"), ("b", 10, "145")], {}, ["ab"]),
        ([("a", 10, "79"), ("b", 10, "79")], {}, []),
        ([("a", None, "149"), ("b", None, "145")], {}, ["a", "b"]),
        ([("a", 10, "149"), ("b", 11, "145"), ("b", 500, "145"), ("c", 501, "145")], {}, ["abc"]),
    ],
    ids=[
        *("in one moment", "seconds apart", "cliques differ", "one clique", "one is recorded"),
        *("a lost GPU", "no link failed", "without times", "a host in two moments"),
    ],
)
def test_hosts_of_one_domain(
    events: Sequence[Event], cliques: dict[str, str], together: list[str]
) -> None:
    found = domains(events, cliques)
    groups: dict[str, str] = {}
    for node, domain in sorted(found.items()):
        groups[domain] = groups.get(domain, "") + str(node)
    assert sorted(groups.values()) == together


def test_a_text_that_names_no_host_is_a_domain() -> None:
    assert len(domains([(None, None, "149"), (None, None, "145")], {})) == 1


def test_what_a_collector_logged_of_a_gpu_goes_by_its_gravest_line() -> None:
    """NVML's event has the number alone; the kernel's line says that it is fatal, and where."""
    with Incident.empty() as incident:
        texts = ["Xid 149 of GPU 3", NONFATAL, FATAL]
        incident.append(
            "host_events",
            {
                "node": ["a"] * 3,
                "at_ns": [S, S, S + 1],
                "code": ["xid_149", "xid_145", "xid_149"],
                "device": ["0000:1b:00.0"] * 3,
                "text": texts,
            },
        )
        about = {"job": ["j"], "rank": [3], "node": ["a"], "gpu": [3], "pci_bus": ["0000:1b:00.0"]}
        incident.append("ranks", about)
        incident.append("gpus", {"node": ["a"], "gpu": [3], "at_ns": [S], "nvlinks_up": [18]})
        incident.require(["machine_symptoms"])
        found = incident.con.execute(
            "SELECT code, fatal, text, domain, action FROM machine_symptoms"
        )
        (code, fatal, text, domain, action) = found.fetchone() or ()
        assert (code, fatal, domain) == ("nvlink_logged", True, "NVLinks of a")
        assert "fatal, link 6" in text
        assert "reset all" in action
