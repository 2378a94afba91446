"""A session on nodes: asked repeatedly, silence reported, the past read from their shards."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fleet.tree.gateways import DIES, Counted, Gateways

from oncall.console.evidence_queries import GetCommunicator, GetRankCard, GetRates, GetStepRows
from oncall.console.live import Fleet
from oncall.console.opening import open_recording
from oncall.console.queries import (
    GatherSnapshot,
    GetSnapshot,
    ListJobs,
    ListTroubles,
    ProbeNodes,
    SaveIncident,
)
from oncall.console.replay import Replay
from oncall.console.rulebook_store import RulebookStore
from oncall.core.errors import Interrupted, UsageError
from oncall.core.units import NS_PER_S
from oncall.evidence.incident import Incident
from oncall.fleet.local import LocalTransport
from oncall.fleet.outcome import HostError
from oncall.fleet.reach import Reach, reach_fleet, reach_shards
from oncall.tui.shell.log import changes
from oncall.views.snapshot import RankState

from .conftest import AT_NS, CULPRIT

Live = Callable[[Reach], Replay]
_PATIENCE_S = 60.0


@pytest.fixture
def live(store: RulebookStore) -> Iterator[Live]:
    """Opens live sessions on all that the shards hold; they end with the test."""
    sessions: list[Replay] = []

    def open_(reach: Reach) -> Replay:
        sessions.append(Replay(Fleet(reach, store, since_ns=None), store))
        return sessions[-1]

    yield open_
    for session in sessions:
        session.close()


def nodes(shards: Path) -> dict[str, Path]:
    return {path.name: path for path in shards.iterdir() if path.is_dir()}


def children() -> list[str]:
    """The processes that this one has started and that are still there."""
    stats = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            stats.append(path.read_text())
    return [stat for stat in stats if stat.rpartition(")")[2].split()[1] == str(os.getpid())]


def refreshed_until(session: Replay, kinds: set[str]) -> None:
    """Gather until what became of the hosts is these: who failed is not waited for at once."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        found = {one.kind for one in session.ask(GatherSnapshot()).hosts}
        if found == kinds:
            return
        assert time.monotonic() < deadline, found


class Failing:
    """Reaches the nodes of a folder, as long as they are not in `down`; counts connections."""

    def __init__(self, shards: Path) -> None:
        self.transport = LocalTransport(nodes(shards), in_process=True)
        self.down: set[str] = set()
        self.connected: list[str] = []
        self.open = 0
        self.slow: set[str] = set()  # answer when they are taken out
        self.waiting = threading.Event()

    @asynccontextmanager
    async def connect(self, host: str):  # type: ignore[no-untyped-def]
        if host in self.down:
            raise HostError("timeout", "no answer within 20 s")
        async with self.transport.connect(host) as connection:
            self.connected.append(host)
            self.open += 1
            real = connection.ask

            async def ask(request, sink=None, **more):  # type: ignore[no-untyped-def]
                if host in self.down:
                    raise HostError("timeout", "no answer within 20 s")
                while host in self.slow:
                    self.waiting.set()
                    await asyncio.sleep(0.01)
                return await real(request, sink, **more)

            connection.ask = ask
            try:
                yield connection
            finally:
                self.open -= 1


def reach(transport: Failing, shards: Path) -> Reach:
    return Reach(transport, tuple(sorted(nodes(shards))), "test")


def test_nodes_of_a_hang_are_asked_and_diagnosed(live: Live, shards: Path) -> None:
    session = live(reach_fleet(f"local:{shards}/gpu*", None))
    [line] = session.ask(ListJobs())
    assert (line.job, line.nodes, line.ranks, line.state) == ("simulated", 2, 16, "ended")
    snapshot = session.ask(GetSnapshot())
    [finding, *_] = snapshot.diagnosis.findings
    assert (finding.verdict, finding.blame[0].where["rank"]) == ("H1", CULPRIT)
    assert snapshot.moment.live and session.live
    assert [(one.host, one.kind) for one in snapshot.hosts] == [("gpu001", "ok"), ("gpu002", "ok")]
    assert snapshot.ranks.state[CULPRIT] == RankState.BLAMED
    # All that can be asked of a recording can be asked here.
    assert session.ask(GetStepRows(finding.id, 0)).table.total == finding.story[0].rows
    assert session.ask(GetRankCard(CULPRIT)).operations.total > 0
    assert session.ask(GetRates())


def test_a_job_whose_nodes_do_not_answer_has_not_ended(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    assert [one.state for one in session.ask(ListJobs())] == ["ended"]
    transport.down.add("gpu001")
    assert [one.state for one in session.ask(ListJobs())] == ["silent"]


def test_a_gateway_that_fails_is_reported_until_it_is_back(
    live: Live, shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.fleet.branch.GATEWAY_RETRY_S", 0.0)
    direct, gateways = Counted(nodes(shards)), Gateways(nodes(shards), {"gw2": DIES})
    session = live(Reach(direct, tuple(sorted(nodes(shards))), "test", tree=gateways.tree()))
    session.ask(ListJobs())
    [trouble] = session.ask(ListTroubles())
    assert (trouble.hosts, trouble.silent) == ("gateway gw2", False)
    assert trouble.what == "sh ended with status 1: without a message; its nodes are asked directly"
    assert trouble.command == "oncall doctor gw2"
    lost = session.ask(GetSnapshot())
    assert {one.kind for one in lost.hosts} == {"ok"}
    assert list(lost.lost_gateways) == ["gw2"]
    assert direct.connections == ["gpu002"]
    assert (f"gateway gw2: {trouble.what}", "warning") in list(changes(None, lost))
    gateways.programs.clear()
    back = session.ask(GatherSnapshot())
    assert not back.lost_gateways
    assert list(changes(lost, back)) == [("gateway back: gw2", "info")]


@pytest.mark.slow
def test_connections_stay_from_gather_to_gather(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    first = session.ask(GetSnapshot())
    for _ in range(3):
        again = session.ask(GatherSnapshot())
    assert again.version > first.version
    assert again.diagnosis.findings == first.diagnosis.findings
    assert sorted(transport.connected) == ["gpu001", "gpu002"]
    session.close()
    assert transport.open == 0


def test_a_node_that_falls_silent_is_reported_and_comes_back(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    session.ask(GetSnapshot())
    transport.down = {"gpu002"}
    snapshot = session.ask(GatherSnapshot())
    [_, silent] = snapshot.hosts
    assert (silent.host, silent.kind) == ("gpu002", "timeout")
    assert silent.age_ns is not None and silent.age_ns > 0
    assert (snapshot.ranks.state[8:] == RankState.UNKNOWN).all()
    assert snapshot.diagnosis.coverage.ranks_seen == 8
    transport.down = set()
    refreshed_until(session, {"ok"})


def test_where_nobody_answers_the_last_good_answer_stays(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    findings = session.ask(GetSnapshot()).diagnosis.findings
    transport.down = {"gpu001", "gpu002"}
    snapshot = session.ask(GatherSnapshot())
    assert snapshot.diagnosis.findings == findings
    assert {one.kind for one in snapshot.hosts} == {"timeout"}


def test_nobody_ever_answered_is_an_error_that_says_why(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    transport.down = {"gpu001", "gpu002"}
    session = live(reach(transport, shards))
    with pytest.raises(UsageError, match="no answer within 20 s"):
        session.ask(GetSnapshot())


def test_the_past_is_seen_as_it_stood(live: Live, shards: Path) -> None:
    session = live(reach_shards(nodes(shards)))
    now = session.ask(GetSnapshot())
    assert now.moment.first_ns is not None
    at_ns = now.moment.first_ns + AT_NS - 10 * NS_PER_S
    past = session.ask(GetSnapshot(at_ns))
    assert past.moment.at_ns == at_ns and not past.moment.live
    assert past.moment.last_ns == now.moment.last_ns
    assert not past.diagnosis.findings
    assert (past.ranks.state < RankState.HUNG).all()
    assert session.ask(GetSnapshot()).diagnosis.findings == now.diagnosis.findings


def test_the_past_is_asked_where_the_last_gather_does_not_tell_it(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    now = session.ask(GetSnapshot())
    history = session.source._history  # type: ignore[attr-defined]
    history._kept[-1] = replace(history._kept[-1], whole=False)
    assert now.moment.first_ns is not None
    at_ns = now.moment.first_ns + AT_NS - 10 * NS_PER_S
    asked = session.ask(GetSnapshot(at_ns))
    transport.down = {"gpu001", "gpu002"}
    kept = session.ask(GetSnapshot(at_ns))
    for past in (asked, kept):
        assert past.moment.at_ns == at_ns and not past.diagnosis.findings
        assert past.diagnosis.coverage.ranks_seen == 16
    assert {one.kind for one in kept.hosts} == {"timeout"}


def test_one_rank_is_asked_of_its_node_where_a_selection_is_shown(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    session.ask(GetSnapshot())
    shown = session.ask(GetRates("rank 3"))
    history = session.source._history  # type: ignore[attr-defined]
    history._kept[-1] = replace(history._kept[-1], whole=False)
    asked = session.ask(GetRates("rank 3"))
    assert [(one.name, one.unit) for one in asked] == [(one.name, one.unit) for one in shown]
    # The node is gone: what the gather brought stands in.
    transport.down = {"gpu001"}
    assert [one.name for one in session.ask(GetRates("rank 3"))] == [one.name for one in shown]


def test_what_is_under_the_cursor_does_not_wait_for_a_gather(
    live: Live, shards: Path, tmp_path: Path
) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    snapshot = session.ask(GetSnapshot())
    [finding, *_] = snapshot.diagnosis.findings
    transport.slow = {"gpu002"}
    gathering = threading.Thread(target=lambda: session.ask(GatherSnapshot()))
    gathering.start()
    assert transport.waiting.wait(60)
    try:
        assert session.ask(GetRankCard(CULPRIT)).rank == CULPRIT
        rows = session.ask(GetStepRows(finding.id, 0))
        assert rows.table.total == finding.story[0].rows
        assert session.ask(GetCommunicator(int(finding.case["comm"], 16))).finding_seq is not None
        assert session.ask(GetRates("rank 3"))
        session.ask(GetRates("nic gpu001 mlx5_3"))  # of its node, which answers
        session.ask(SaveIncident(tmp_path / "meanwhile.oncall"))
        assert gathering.is_alive()
    finally:
        transport.slow = set()
        gathering.join(60)
    assert session.ask(GetSnapshot()).diagnosis.findings == snapshot.diagnosis.findings


@pytest.mark.slow
def test_a_question_keeps_the_snapshot_it_is_about(live: Live, shards: Path) -> None:
    """A new snapshot while a question runs closes nothing under it."""
    session = live(reach_shards(nodes(shards)))
    session.ask(GetSnapshot())
    with session.question() as (present, _):
        assert session.ask(GatherSnapshot()).version > present.snapshot.version
        assert present.incident.rows("ops") > 0
    assert session.ask(GetRankCard(CULPRIT)).operations.total


def test_saving_writes_what_was_gathered(live: Live, shards: Path, tmp_path: Path) -> None:
    session = live(reach_shards(nodes(shards)))
    with pytest.raises(UsageError, match="no evidence to save"):
        session.ask(SaveIncident(tmp_path / "x.oncall"))
    session.ask(GetSnapshot())
    session.ask(SaveIncident(tmp_path / "x.oncall"))
    with Incident.open(tmp_path / "x.oncall") as saved:
        assert saved.rows("ops") > 0


def test_what_was_gathered_stays_while_nodes_are_asked_more(
    live: Live, shards: Path, tmp_path: Path
) -> None:
    """A running job's pulse is asked for every second, over the same gather."""
    session = live(reach_shards(nodes(shards)))
    session.ask(GetSnapshot())
    source = session.source
    assert isinstance(source, Fleet)
    kept = source._history.newest
    assert kept is not None
    source._nodes.pulse(kept.job, tmp_path)
    assert kept.bytes == sum(part.path.stat().st_size for part in kept.answers.parts) > 0
    session.ask(GatherSnapshot())
    assert all(part.path.exists() for part in kept.answers.parts)
    session.ask(SaveIncident(tmp_path / "x.oncall"))
    with Incident.open(tmp_path / "x.oncall") as saved:
        assert saved.rows("ops") > 0


def test_a_folder_of_shards_opens_as_a_recording(shards: Path) -> None:
    session = open_recording([shards], None)
    assert not session.live
    assert session.ask(GetSnapshot()).diagnosis.findings
    session.close()


def pids() -> set[str]:
    return {stat.split()[0] for stat in children()}


def test_cancel_and_close_leave_no_child_and_no_file(
    shards: Path, tmp_path: Path, store: RulebookStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    session = Replay(Fleet(reach_fleet(f"local:{shards}/gpu*", None), store, since_ns=None), store)
    ended: list[BaseException | None] = []
    others = pids()  # servers that tests before this one have started

    def work() -> None:
        try:
            session.ask(GetSnapshot())
            ended.append(None)
        except Interrupted as error:
            ended.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    deadline = time.monotonic() + 60
    while pids() == others and time.monotonic() < deadline:
        time.sleep(0.01)
    session.cancel()
    worker.join(120)
    assert isinstance(ended[0], Interrupted)
    # What was stopped can be asked again.
    assert session.ask(GetSnapshot()).diagnosis.findings
    session.close()
    assert pids() == others
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.slow
def test_an_hour_of_refreshes_takes_a_bounded_place(shards: Path, store: RulebookStore) -> None:
    """An hour by the clock that the session is given, in sixteen refreshes."""
    now_ns = [time.time_ns()]
    session = Replay(Fleet(reach_shards(nodes(shards)), store, since_ns=None), store)
    source = session.source
    source._clock = lambda: now_ns[0]  # type: ignore[attr-defined]
    source._history._most_kept = 4  # type: ignore[attr-defined]
    for _ in range(16):
        now_ns[0] += 225 * NS_PER_S
        session.ask(GatherSnapshot())
    folder = source._folder  # type: ignore[attr-defined]
    assert len(list(folder.iterdir())) == 4
    session.close()
    assert not folder.exists()
    shutil.rmtree(folder, ignore_errors=True)


def test_nodes_are_probed_and_the_next_snapshot_knows(
    live: Live, shards: Path, tmp_path: Path
) -> None:
    session = live(reach_fleet(f"local:{shards}/gpu*", None))
    snapshot = session.ask(GetSnapshot())
    assert not any(host.no_probe for host in snapshot.hosts)
    reported = session.ask(ProbeNodes(("gpu001",)))
    assert "2 nodes" in reported and "gpu001 → gpu002" in reported and "worst pairs" in reported
    assert session.progress("probes") == ""

    after = session.ask(GetSnapshot())
    assert [one.verdict for one in after.diagnosis.findings][:1] == ["H1"]
    session.ask(SaveIncident(tmp_path / "saved.oncall"))
    with Incident.open(tmp_path / "saved.oncall") as saved:
        nodes_pinged = saved.con.execute("SELECT DISTINCT target_node FROM pings").fetchall()
    assert sorted(nodes_pinged) == [("gpu001",), ("gpu002",)]


@pytest.mark.slow
def test_a_probe_can_be_stopped_while_snapshots_go_on(live: Live, shards: Path) -> None:
    transport = Failing(shards)
    session = live(reach(transport, shards))
    session.ask(GetSnapshot())
    transport.slow = set(nodes(shards))
    failures: list[BaseException] = []

    def probe() -> None:
        try:
            session.ask(ProbeNodes(("gpu001",)))
        except BaseException as error:
            failures.append(error)

    asking = threading.Thread(target=probe)
    asking.start()
    assert transport.waiting.wait(30)
    session.cancel("snapshots")
    session.cancel("probes")
    asking.join(30)
    assert [type(error) for error in failures] == [Interrupted]
    transport.slow.clear()
    assert session.ask(GetSnapshot()).diagnosis.findings


@pytest.mark.slow
def test_who_was_never_asked_is_not_probed_nor_shards_that_were_left(
    live: Live, store: RulebookStore, shards: Path
) -> None:
    session = live(reach_fleet(f"local:{shards}/gpu*", None))
    session.ask(GetSnapshot())
    with pytest.raises(UsageError, match="cannot probe gpu404"):
        session.ask(ProbeNodes(("gpu404",)))
    fleet = Fleet(reach_shards(nodes(shards)), store, live=False, since_ns=None)
    left = Replay(fleet, store)
    left.ask(GetSnapshot())
    with pytest.raises(UsageError, match="cannot be probed"):
        left.ask(ProbeNodes(("gpu001",)))
    left.close()
