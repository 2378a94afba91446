"""Networks with a fault, simulated once: what pictures of them are made from."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall_lab.network import NetworkFault, NetworkScenario, simulate_network

Make = Callable[[str], Incident]
Ring = Callable[[int, int, tuple[int, int], int], Incident]
MS = 10**6


@pytest.fixture(scope="session")
def network_of_fault() -> Iterator[Make]:
    """The incident of the first seed with which a fault of that kind delays the collective."""
    made: dict[str, Incident] = {}

    def make(kind: str) -> Incident:
        if kind not in made:
            made[kind] = simulated(kind)
        return made[kind]

    yield make
    for incident in made.values():
        incident.close()


def simulated(kind: str) -> Incident:
    fault = NetworkFault(kind, 1_000_000)
    scenario = NetworkScenario(step_bytes=20_000_000, faults=(fault,))
    for seed in range(2, 22):
        with contextlib.suppress(UsageError):
            return simulate_network(dataclasses.replace(scenario, seed=seed))[0]
    raise AssertionError(f"no seed with which {kind} delays the collective")


@pytest.fixture
def ring_of() -> Ring:
    """Makes a ring of (members, rounds) in which one step (sender, number) takes longer by ns;
    every step waits for that of the neighbour before. No switch tells anything."""
    return ring


def ring(members: int, rounds: int, slow: tuple[int, int], lost_ns: int) -> Incident:
    """A ring in which one step takes longer; every step waits for that of the neighbour before."""
    ends = [[0] * members for _ in range(rounds + 1)]
    rows: dict[str, list[int]] = {
        name: [] for name in ("src", "dst", "step", "started_ns", "ended_ns")
    }
    for step in range(1, rounds + 1):
        for src in range(members):
            begin = max(ends[step - 1][src], ends[step - 1][src - 1])
            end = begin + MS + (lost_ns if (src, step) == slow else 0)
            ends[step][src] = end
            for name, value in zip(rows, (src, (src + 1) % members, step, begin, end), strict=True):
                rows[name].append(value)
    for name in ("started_ns", "ended_ns"):
        rows[name] = [10**18 + value for value in rows[name]]
    incident = Incident.empty()
    columns = {"job": "j", "comm": 7, "seq": 3, "bytes": 1 << 20, "expected_ns": MS}
    incident.append("flow_steps", {**columns, "flow": rows["src"], **rows})
    return incident
