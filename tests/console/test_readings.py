"""What a rank's card tells of its GPU, NIC, host and process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncall.core.units import NS_PER_S as S
from oncall.evidence import Incident
from oncall.views.ranks.rank_card import READINGS, readings

BEGAN_NS = 1_767_225_600 * S  # midnight, UTC
PLACE = {"job": "j", "rank": 3, "node": "a", "gpu": 1, "nic": "mlx5_1", "pid": 42}
PROCESS = {name: PLACE[name] for name in ("job", "rank", "node", "pid")}


@pytest.fixture
def incident() -> Iterator[Incident]:
    with Incident.empty() as incident:
        incident.append("ranks", {name: [value] for name, value in PLACE.items()})
        yield incident


def reported(incident: Incident) -> list[tuple[str, str]]:
    incident.provide(READINGS)
    return list(readings(incident.con, 3))


def test_the_newest_reading_of_each_is_reported(incident: Incident) -> None:
    at = [BEGAN_NS + 10 * S, BEGAN_NS + 11 * S]
    incident.append(
        "gpus",
        {
            "node": "a",
            "gpu": 1,
            "at_ns": at,
            "utilisation": [1.0, 0.9],
            "sm_clock_mhz": [1980, 600],
            "throttle_reasons": [0, 0x20],
        },
    )
    incident.append(
        "nics",
        {
            "node": "a",
            "nic": "mlx5_1",
            "port": 1,
            "at_ns": at,
            "tx_bytes": [0, 5 * S],
            "pfc_rx_pause_ns": [0, S // 4],
            "link_up": [True, False],
        },
    )
    incident.append("hosts", {"node": "a", "at_ns": at, "cpu_busy": 0.5, "io_pressure": 0.0})
    incident.append(
        "host_processes",
        PROCESS | {"at_ns": at, "cpu_ns": [0, 2 * S], "cpu_quota": 8.0},
    )
    assert reported(incident) == [
        ("GPU now", "busy 90 %, at 600 MHz, throttled by thermal (00:00:11 UTC)"),
        ("NIC now", "sends 5 GB/s, paused 25 %, link down (00:00:11 UTC)"),
        ("host now", "CPUs busy 50 % (00:00:11 UTC)"),
        ("process now", "uses 2 CPUs, of quota 8 (00:00:11 UTC)"),
    ]


def test_what_was_said_of_others_is_left_to_them(incident: Incident) -> None:
    for device, bus in (("1", "0000:17:00.0"), ("2", "0000:18:00.0")):
        gpu = {"node": "a", "kind": "gpu", "device": device, "at_ns": S, "pci_bus": bus}
        incident.append("devices", {name: [value] for name, value in gpu.items()})
    incident.append(
        "host_events",
        {
            "node": ["a", "a", "a", "b"],
            "at_ns": [BEGAN_NS + second * S for second in (1, 2, 3, 4)],
            "code": ["xid_79", "xid_48", "oom", "oom"],
            "device": ["0000:17:00.0", "0000:18:00.0", None, None],
            "text": ["its own", "another's", "the node's", "elsewhere"],
        },
    )
    assert reported(incident) == [
        ("event", "00:00:03 UTC the node's"),
        ("event", "00:00:01 UTC its own"),
    ]
