"""A session tells a collective in the network, under the time cursor too, and the rows behind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncall.console.evidence_queries import GetNetwork, GetNetworkRows, GetNetworkStep
from oncall.console.opening import open_recording
from oncall.console.queries import GetSnapshot
from oncall.console.session import Session
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.views.network.collective import Opened
from oncall_lab.network import NetworkFault, NetworkScenario, simulate_network

PAUSED_NIC = {
    "job": "j", "node": "n3", "nic": "mlx5_0", "port": 1,
    "at_ns": [10**18 - 10**9, 10**18 + 10**9], "pfc_rx_pause": [10, 510],
}  # fmt: skip


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An incast delays a collective of eight ranks."""
    path = tmp_path_factory.mktemp("network") / "incast.oncall"
    scenario = NetworkScenario(step_bytes=20_000_000, faults=(NetworkFault("INCAST", 1_000_000),))
    with first_that_delays(scenario) as incident:
        incident.save(path)
    return path


@pytest.fixture(scope="module")
def session(recording: Path) -> Iterator[Session]:
    opened = open_recording([recording], None)
    opened.ask(GetSnapshot())
    yield opened
    opened.close()


def first_that_delays(scenario: NetworkScenario) -> Incident:
    for seed in range(2, 22):
        with contextlib.suppress(UsageError):
            return simulate_network(dataclasses.replace(scenario, seed=seed))[0]
    raise AssertionError("no seed delays the collective")


def test_the_late_step_its_way_and_whose_flows(session: Session) -> None:
    view = session.ask(GetNetwork())
    assert [one.seq for one in view.collectives] == [view.graph.collective.seq]
    worst = view.graph.worst
    assert worst is not None and worst.late and worst.critical
    reported = session.ask(GetNetworkStep(view.graph.collective, worst))
    assert (
        reported.why_not is None
        and reported.topology is not None
        and reported.provenance is not None
    )
    root = reported.topology.root
    assert root is not None and root.kind == "contention"
    assert root.label in view.contributors[0].ports
    assert {flow.flow for flow in reported.provenance.flows} >= {view.contributors[0].flow}
    in_time = next(step for lane in view.graph.lanes for step in lane.steps if not step.late)
    why = session.ask(GetNetworkStep(view.graph.collective, in_time)).why_not
    assert why is not None and "the network did not delay it" in why
    with pytest.raises(UsageError, match="no steps recorded for collective 9"):
        session.ask(GetNetwork((view.graph.collective.comm, 9)))


def test_rows_behind_a_step_and_a_flow(session: Session) -> None:
    view = session.ask(GetNetwork())
    worst, of = view.graph.worst, view.graph.collective
    assert worst is not None
    ports = session.ask(GetNetworkRows(Opened("step", of, worst)))
    assert ports.columns[:2] == ("port", "packets") and ports.total > 5
    flow = view.contributors[0]
    rows = session.ask(GetNetworkRows(Opened("flow", of, flow=flow.flow)))
    assert {row[rows.columns.index("port")] for row in rows.rows} >= set(flow.ports)
    in_time = next(step for lane in view.graph.lanes for step in lane.steps if not step.late)
    (row,) = session.ask(GetNetworkRows(Opened("step", of, in_time))).rows
    assert row[:3] == in_time.key
    with pytest.raises(UsageError, match="nothing to open"):
        session.ask(GetNetworkRows(Opened("node", of)))


def test_under_the_time_cursor_a_step_is_not_over(session: Session) -> None:
    worst = session.ask(GetNetwork()).graph.worst
    assert worst is not None
    session.ask(GetSnapshot(worst.ended_ns - 10**5))
    view = session.ask(GetNetwork())
    session.ask(GetSnapshot())
    assert not view.graph.collective.over
    assert max(step.ended_ns for step in view.graph.path) < worst.ended_ns
    (cut,) = (step for lane in view.graph.lanes for step in lane.steps if step.key == worst.key)
    assert not cut.over


def test_without_switches_a_paused_nic_is_the_last_known_edge(tmp_path: Path) -> None:
    with Incident.empty() as incident:
        begin = 10**18
        src = list(range(4)) * 3
        step = [number for number in (1, 2, 3) for _ in range(4)]
        late = [s == 3 and n == 2 for s, n in zip(src, step, strict=True)]
        incident.append(
            "flow_steps",
            {"job": "j", "comm": 7, "seq": 0, "flow": src, "src": src,
             "dst": [(one + 1) % 4 for one in src], "step": step, "bytes": 1 << 24,
             "started_ns": [begin + n * 10**7 for n in step],
             "ended_ns": [begin + n * 10**7 + 5 * 10**6 * (1 + slow)
                          for n, slow in zip(step, late, strict=True)],
             "expected_ns": 5 * 10**6},
        )  # fmt: skip
        ranks = list(range(4))
        incident.append("ranks", {"job": "j", "rank": ranks, "node": [f"n{r}" for r in ranks]})
        incident.append("nics", {k: v for k, v in PAUSED_NIC.items() if k != "job"})
        incident.append("links", {"a": ["n3"], "a_port": 1, "b": ["leaf1"], "b_port": 4})
        incident.save(tmp_path / "paused.oncall")
    opened = open_recording([tmp_path / "paused.oncall"], None)
    try:
        opened.ask(GetSnapshot())
        view = opened.ask(GetNetwork())
        late_step = next(step for lane in view.graph.lanes for step in lane.steps if step.late)
        assert opened.ask(GetNetworkStep(view.graph.collective, late_step)).why_not == (
            "NIC mlx5_0 of n3 was paused from upstream of ToR port leaf1P4 (500 frames); "
            "the cause needs switch data"
        )
    finally:
        opened.close()
