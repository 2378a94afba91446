"""A network of which only hosts tell: what their NICs count, and what rules make of it."""

from __future__ import annotations

import numpy as np
import pytest

from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_file, shipped_folder
from oncall.use_case.diagnose import diagnose
from oncall_lab.network import NetworkFault, NetworkScenario
from oncall_lab.network.host_counters import nic_rows
from oncall_lab.network.plan import plan
from oncall_lab.network.play import Played, play
from oncall_lab.network.record import record

MS = 1_000_000
STEP = 20_000_000
BOOKS = ("congestion",)


def played(kind: str | None = None, seed: int = 3, steps: str = "recorded") -> Played:
    faults = () if kind is None else (NetworkFault(kind, 1 * MS, lasting_ns=6 * MS),)
    scenario = NetworkScenario(
        seed=seed,
        members=5,
        step_bytes=STEP,
        reports="never",
        steps=steps,
        nics_every_ns=25 * MS,
        epoch_ns=50_000,
        faults=faults,
    )
    return play(scenario, plan(scenario))


def test_switches_are_silent_and_hosts_know_only_what_they_are_plugged_into() -> None:
    with record(played("CONTENTION")) as incident:
        switches = ("switch_ports", "switch_flows", "switch_meters", "switch_pauses")
        assert [incident.rows(table) for table in switches] == [0, 0, 0, 0]
        names = incident.con.execute(
            "SELECT DISTINCT is_collective FROM flows UNION SELECT a LIKE 'host%' FROM links"
        ).fetchall()
    assert names == [(True,)]


@pytest.mark.parametrize("kind", ["PFC_STORM", "SLOW_RECEIVER"])
def test_nics_count_what_was_played(kind: str) -> None:
    run = played(kind)
    rows = nic_rows(run, np.random.default_rng(1))
    hosts = run.plan.tree.hosts

    def grown(name: str) -> np.ndarray:
        values = np.asarray(rows[name]).reshape(hosts, -1)
        assert (np.diff(values, axis=1) >= 0).all(), "counters never fall"
        return values[:, -1] - values[:, 0]  # type: ignore[no-any-return]

    own = np.zeros(hosts)
    np.add.at(own, np.array(run.plan.hosts)[run.plan.messages.src], run.plan.messages.bytes)
    assert grown("tx_bytes") == pytest.approx(own, rel=0.01, abs=1), "all were sent by members"
    assert grown("tx_bytes").sum() == pytest.approx(grown("rx_bytes").sum(), rel=0.01)
    assert grown("pfc_rx_pause_ns") == pytest.approx(stopped(run, 0), abs=hosts)
    assert grown("pfc_tx_pause_ns") == pytest.approx(stopped(run, 1), abs=hosts)
    for way in ("rx", "tx"):
        assert ((grown(f"pfc_{way}_pause") > 0) == (grown(f"pfc_{way}_pause_ns") > 0)).all()


def stopped(run: Played, end: int) -> np.ndarray:
    """(hosts,) how long each host's port had to stop, or (1) its switch's port to it."""
    tree = run.plan.tree
    total = np.zeros(tree.hosts)
    since: dict[int, float] = {}
    out = {tree.between[h, tree.edge_of(h)] ^ end: h for h in range(tree.hosts)}
    for at_ns, port, paused in [*run.pauses, *((run.until_ns, port, False) for port in out)]:
        if paused:
            since[port] = at_ns
        elif port in since and port in out:
            total[out[port]] += at_ns - since.pop(port)
    return total


STORM = ("PFC_STORM", "PAUSED_UPSTREAM", "switch data would decide")
SLOW = ("SLOW_RECEIVER", "SLOW_RECEIVER", "paused its switch itself")


@pytest.mark.parametrize(
    ("kind", "verdict", "says", "steps"),
    [
        pytest.param(*STORM, "traffic", id="storm, steps found in traffic"),
        pytest.param(*SLOW, "recorded", id="slow receiver, steps recorded"),
        pytest.param(*STORM, "recorded", id="storm, steps recorded", marks=pytest.mark.slow),
        pytest.param(*SLOW, "traffic", id="slow receiver, traffic", marks=pytest.mark.slow),
    ],
)
def test_the_story_goes_as_far_as_hosts_see(kind: str, verdict: str, says: str, steps: str) -> None:
    run = played(kind, steps=steps)
    with record(run) as incident:
        found = diagnosed(incident)
    assert [finding[0] for finding in found] == [verdict]
    ((_, nodes, story),) = found
    port = run.plan.injected[0].storms[0].port
    tree = run.plan.tree
    if kind == "SLOW_RECEIVER":
        assert nodes == {tree.name(int(tree.towards[port]))}
    else:  # whoever sends over the port that was stopped
        routes = zip(run.plan.messages.pairs, run.plan.routes, strict=True)
        through = {tree.name(run.plan.hosts[src]) for (src, _), way in routes if port in way}
        assert nodes & through
    assert says in story


@pytest.mark.parametrize("steps", ["recorded", "traffic"])
def test_healthy_hosts_are_quiet(steps: str) -> None:
    with record(played(steps=steps)) as incident:
        assert diagnosed(incident) == []


def diagnosed(incident: Incident) -> list[tuple[str, set[str], str]]:
    """Of each root: its verdict, the hosts it blames, and all that it says."""
    books = [load_file(shipped_folder() / f"{name}.yaml") for name in BOOKS]
    return [
        (f.verdict, {str(b.where["node"]) for b in f.blame}, " ".join(s.say for s in f.story))
        for f in diagnose(incident, books).findings
        if f.explained_by is None
    ]


def test_traffic_is_of_a_ring_that_no_switch_reports() -> None:
    with pytest.raises(UsageError, match="steps: traffic"):
        NetworkScenario(steps="traffic")
