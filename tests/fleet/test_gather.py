"""A job's evidence from nodes that answer, and from others that do all they should not."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import ExitCode, UsageError
from oncall.evidence.incident import Incident
from oncall.fleet import outcome
from oncall.fleet.ask import Answer, ask_fleet, choose_job
from oncall.fleet.child_process import Child
from oncall.fleet.endpoint import serve
from oncall.fleet.endpoint.node import Node
from oncall.fleet.endpoint.sealed import evidence_of
from oncall.fleet.gather import Gather, Progress, Window
from oncall.fleet.host import Host
from oncall.fleet.local import LocalTransport
from oncall.fleet.outcome import HostError, Outcome
from oncall.fleet.transport import Connection
from oncall.node.store.wire import Limits, Request
from oncall.rules.engine.starts import started_communicators
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook import Rulebook
from oncall.use_case import diagnose as use_case
from oncall_lab import TrainingScenario, simulate
from oncall_lab.drawn.training import random_scenario
from oncall_lab.training.fault import TrainingFault

RULEBOOKS = load_rulebooks([shipped_folder()])
HANG_ONLY = [book for book in RULEBOOKS if book.name == "hang"]  # quicker, where it is enough
WriteNodes = Callable[..., dict[str, Path]]


def ask(
    transport: Any,
    hosts: Mapping[str, Any],
    job: str | None = None,
    *,
    rulebooks: Sequence[Rulebook] = RULEBOOKS,
) -> Answer:
    def starting(incident: Incident) -> set[int]:
        return started_communicators(incident, rulebooks)

    patient = ask_fleet(transport, tuple(hosts), job, Window(), starting, patience_s=120)
    return asyncio.run(patient)


def reported(diagnosis: Diagnosis) -> list[tuple[str, str, list[Any]]]:
    return [
        (finding.rulebook, finding.verdict, sorted(blame.where["rank"] for blame in finding.blame))
        for finding in diagnosis.findings
    ]


@pytest.fixture(scope="module")
def hang() -> Incident:
    fault = TrainingFault("H1", ranks=(5,), at_ns=8 * 10**9)
    return simulate(
        TrainingScenario(job="it's", tp=2, pp=1, dp=4, gpus_per_node=2, faults=(fault,))
    )[0]


@pytest.fixture(scope="module")
def written(
    hang: Incident, tmp_path_factory: pytest.TempPathFactory, write_nodes: WriteNodes
) -> dict[str, Path]:
    return write_nodes(hang, tmp_path_factory.mktemp("written"))


@pytest.fixture
def nodes(written: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """A copy of the nodes' folders, to damage as one likes."""
    return {node: shutil.copytree(folder, tmp_path / node) for node, folder in written.items()}


@pytest.fixture(scope="module")
def pair_written(
    tmp_path_factory: pytest.TempPathFactory, write_nodes: WriteNodes
) -> dict[str, Path]:
    fault = TrainingFault("H1", ranks=(3,), at_ns=8 * 10**9)
    job = TrainingScenario(job="it's", tp=2, pp=1, dp=2, gpus_per_node=2, faults=(fault,))
    with simulate(job)[0] as incident:
        return write_nodes(incident, tmp_path_factory.mktemp("pair"), 1)


@pytest.fixture
def pair(pair_written: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
    """The smallest fleet: two nodes with a shard each, for tests of gathering alone."""
    return {node: shutil.copytree(folder, tmp_path / node) for node, folder in pair_written.items()}


class Stuck:
    """Reaches nodes in folders; one of them refuses at first, and then never speaks."""

    def __init__(self, nodes: dict[str, Path], host: str) -> None:
        self._nodes = LocalTransport(nodes, in_process=True)
        self._host = host
        self.tries = 0

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        if host == self._host:
            self.tries += 1
            if self.tries == 1:
                raise HostError("refused", "no route to host")
            await asyncio.Event().wait()
        async with self._nodes.connect(host) as connection:
            yield connection


def test_who_failed_before_is_tried_again_and_not_waited_for(
    nodes: dict[str, Path], tmp_path: Path
) -> None:
    transport = Stuck(nodes, "gpu002")

    async def twice() -> None:
        async with Gather(transport, tuple(nodes), Window(), tmp_path, patience_s=1000) as gather:
            for _ in range(3):
                outcomes = await gather.greet()
                kinds = {host: outcome.kind for host, outcome in outcomes.items()}
                assert kinds == dict.fromkeys(nodes, "ok") | {"gpu002": "refused"}
                gather.again(Window(), tmp_path)

    asyncio.run(twice())
    assert transport.tries == 2


def test_a_node_that_is_late_is_slow_and_its_answer_counts_when_it_comes(
    pair: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    late, may_answer = "gpu002", threading.Event()

    def held_up(node: Node, *rest: Any) -> Any:
        if node.name == late:
            may_answer.wait(30)
        return evidence_of(node, *rest)

    monkeypatch.setattr(serve, "evidence_of", held_up)
    monkeypatch.setattr(outcome, "SLOW_S", 1.0)

    async def until_it_has_come() -> list[tuple[Outcome, set[str]]]:
        seen: list[tuple[Outcome, set[str]]] = []
        transport = LocalTransport(pair, in_process=True)
        async with Gather(transport, tuple(pair), Window(), patience_s=3) as gather:
            while not seen or seen[-1][0].kind != "ok":
                await gather.greet()
                await gather.digest("it's")
                senders = {part.sender for part in gather.parts}
                seen.append((gather.answers.outcomes[late], senders))
                may_answer.set()
                gather.again(Window(), tmp_path / "again")
            return seen

    (first, without), *_, (then, with_it) = asyncio.run(until_it_has_come())
    assert (first.kind, first.slowness) == ("timeout", "needs over 3 s to answer")
    assert then.seconds >= 3
    assert late in with_it - without


# ------------------------------------------------------------------- as it should


def test_nodes_asked_in_processes_of_their_own_tell_what_their_recording_tells(
    nodes: dict[str, Path],
) -> None:
    answer = ask(LocalTransport(nodes), nodes)
    with answer.incident as incident:
        assert answer.job == "it's"
        assert {outcome.kind for outcome in answer.outcomes.values()} == {"ok"}
        diagnosis = use_case.diagnose(incident, RULEBOOKS, answer.job)
        clocks = incident.con.execute("SELECT node, abs(offset_ns), error_ns FROM clocks")
        for node, offset_ns, error_ns in clocks.fetchall():
            assert node in nodes
            assert offset_ns <= error_ns  # one machine, one clock
    assert reported(diagnosis) == [("hang", "H1", [5])]
    assert (diagnosis.coverage.nodes, diagnosis.coverage.answered) == (4, 4)
    assert diagnosis.coverage.gaps == ()


def test_shards_without_candidates_are_read_in_full(
    hang: Incident, tmp_path: Path, write_nodes: WriteNodes
) -> None:
    folders = write_nodes(hang, tmp_path, prepared=False)
    with ask(LocalTransport(folders, in_process=True), folders).incident as incident:
        assert reported(use_case.diagnose(incident, RULEBOOKS, None)) == [("hang", "H1", [5])]


def test_a_host_that_never_answered_is_named_with_its_ranks(nodes: dict[str, Path]) -> None:
    shutil.rmtree(nodes["gpu003"])
    with ask(LocalTransport(nodes, in_process=True), nodes).incident as incident:
        diagnosis = use_case.diagnose(incident, RULEBOOKS, None)
    roots = [finding for finding in diagnosis.findings if finding.explained_by is None]
    assert {finding.verdict for finding in roots} == {"H1"}
    blamed = {(blame.where["rank"], blame.where["node"]) for f in roots for blame in f.blame}
    assert blamed == {(4, "gpu003"), (5, "gpu003")}
    assert any("gpu003 gave no evidence" in step.say for finding in roots for step in finding.story)
    assert any("ranks 4-5 placed on gpu003" in note for note in diagnosis.notes)


@pytest.mark.parametrize(
    "kind", ["H3", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("S1", "S2"))]
)
def test_a_thinned_digest_and_details_tell_what_all_rows_tell(
    kind: str, tmp_path: Path, write_nodes: WriteNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = random_scenario(1, [kind])
    incident, _ = simulate(scenario)
    folders = write_nodes(incident, tmp_path)
    with incident:
        monkeypatch.setattr("oncall.fleet.gather.LEAST_NODE_ROWS", 1)
        monkeypatch.setattr(
            "oncall.fleet.gather.NODE_ROWS", incident.rows("ops") // len(folders) // 6
        )
        whole = reported(use_case.diagnose(incident, RULEBOOKS, scenario.job))
    answer = ask(LocalTransport(folders, in_process=True), folders)
    with answer.incident as gathered:
        assert reported(use_case.diagnose(gathered, RULEBOOKS, scenario.job)) == whole


class Noting:
    """Reaches nodes in folders, and notes what is asked of which."""

    def __init__(self, nodes: dict[str, Path]) -> None:
        self._nodes = LocalTransport(nodes, in_process=True)
        self.asked: list[tuple[str, Request]] = []

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        async with self._nodes.connect(host) as connection:
            real = connection.ask

            async def ask(request: Request, *sink: Any, **more: Any) -> Any:
                self.asked.append((host, request))
                return await real(request, *sink, **more)

            connection.ask = ask  # type: ignore[method-assign]
            yield connection


def test_details_end_where_the_digest_of_their_node_ended(
    tmp_path: Path, write_nodes: WriteNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or communicators whose details are not asked for would seem to stand still since."""
    monkeypatch.setattr("oncall.fleet.gather.LEAST_NODE_ROWS", 1)
    monkeypatch.setattr("oncall.fleet.gather.NODE_ROWS", 400)
    incident, _ = simulate(random_scenario(1, ["H3"]))
    with incident:
        transport = Noting(write_nodes(incident, tmp_path))
    ends: dict[str, int] = {}

    def starting(digest: Incident) -> set[int]:
        ends.update(
            digest.con.execute(
                "SELECT node, max(greatest(enqueued_ns, ended_ns, observed_ns)) "
                "FROM ops JOIN ranks USING (job, rank) GROUP BY node"
            ).fetchall()
        )
        return {comm for (comm,) in digest.con.execute("SELECT DISTINCT comm FROM ops").fetchall()}

    hosts = tuple(path.name for path in tmp_path.iterdir())
    asking = ask_fleet(transport, hosts, None, Window(), starting, patience_s=120)
    asyncio.run(asking).incident.close()
    details = {host: one.until_ns for host, one in transport.asked if one.ask == "detail"}
    assert details and details == {host: ends[host] for host in details}
    assert all(one.until_ns is None for _, one in transport.asked if one.ask == "digest")


def test_a_node_that_loses_the_evidence_is_still_one_of_the_job_and_comes_back(
    pair: dict[str, Path], tmp_path: Path
) -> None:
    """As where a collector is killed before it has sealed a shard, or hangs."""
    away = tmp_path / "away"

    async def looks() -> list[str]:
        kinds = []
        transport = LocalTransport(pair, in_process=True)
        async with Gather(transport, tuple(pair), Window(), tmp_path, patience_s=120) as gather:
            for look in range(3):
                if look == 1:
                    pair["gpu002"].rename(away)
                    pair["gpu002"].mkdir()
                elif look == 2:
                    pair["gpu002"].rmdir()
                    away.rename(pair["gpu002"])
                await gather.greet()
                await gather.digest("it's")
                kinds.append(gather.answers.outcomes["gpu002"].kind)
                assert gather.answers.outcomes["gpu001"].kind == "ok"
                gather.again(Window(), tmp_path)
        return kinds

    assert asyncio.run(looks()) == ["ok", "lost", "ok"]


def test_a_job_is_found_by_itself_or_the_choice_is_listed(nodes: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match=r"no job `other`: it's on gpu\[001-004\]"):
        ask(LocalTransport(nodes, in_process=True), nodes, "other")
    window = Window(since_ns=4 * 10**18)
    with pytest.raises(UsageError, match="no evidence in the window"):
        transport = LocalTransport(nodes, in_process=True)
        asyncio.run(ask_fleet(transport, tuple(nodes), None, window, lambda _: set()))


# ------------------------------------------------------------------ as it should not


def test_where_nobody_answers_in_time_nothing_is_called_healthy() -> None:
    transport = HostileTransport({}, {"bad": HOSTILE["silence"]}, silence_s=1.0)
    with ask(transport, ("bad",), "it's").incident as incident:
        diagnosis = use_case.diagnose(incident, RULEBOOKS, "it's")
    assert use_case.exit_code(diagnosis) == ExitCode.TOO_LITTLE_COVERAGE
    assert [gap.nodes for gap in diagnosis.coverage.gaps] == [("bad",)]


def test_a_defect_with_one_host_is_called_so_and_the_others_are_diagnosed(
    pair: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    greet = Host.greet

    async def broken(self: Host, since_ns: int | None) -> None:
        if self.name == "broken":
            raise KeyError("what")
        await greet(self, since_ns)

    monkeypatch.setattr(Host, "greet", broken)
    nodes = {**pair, "broken": next(iter(pair.values()))}
    answer = ask(LocalTransport(nodes, in_process=True), nodes, rulebooks=HANG_ONLY)
    with answer.incident as incident:
        diagnosis = use_case.diagnose(incident, HANG_ONLY, None)
    assert reported(diagnosis) == [("hang", "H1", [3])]
    [why] = [gap.reason for gap in diagnosis.coverage.gaps if "broken" in gap.nodes]
    assert "a defect of oncall: KeyError: 'what'" in why
    assert str(tmp_path) in why
    assert "in broken" in (tmp_path / "oncall" / "defects.log").read_text()


def test_hosts_that_are_gone_and_shards_that_are_damaged_are_stated_gaps(
    nodes: dict[str, Path],
) -> None:
    shutil.rmtree(nodes["gpu004"])
    shard = sorted(nodes["gpu003"].iterdir())[0]
    shard.write_bytes(shard.read_bytes()[:30_000])
    transport = LocalTransport(nodes, in_process=True)
    with ask(transport, nodes, rulebooks=HANG_ONLY).incident as incident:
        coverage = use_case.diagnose(incident, HANG_ONLY, None).coverage
    assert (coverage.nodes, coverage.answered) == (4, 3)
    gaps = {gap.reason: gap.nodes for gap in coverage.gaps}
    assert gaps["cannot be reached: no such folder"] == ("gpu004",)
    assert any("damaged" in reason and at == ("gpu003",) for reason, at in gaps.items())


def test_a_collector_that_hangs_costs_its_rows_and_no_more(
    nodes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.fleet.endpoint.node.GREETING_TIMEOUT_S", 0.2)
    run = nodes["gpu001"] / "run"
    run.mkdir()
    with socket.socket(socket.AF_UNIX) as hanging:
        hanging.bind(str(run / "collector.sock"))
        hanging.listen()
        transport = LocalTransport(nodes, in_process=True)
        answer = ask(transport, nodes, rulebooks=HANG_ONLY)
    with answer.incident as incident:
        diagnosis = use_case.diagnose(incident, HANG_ONLY, None)
    assert reported(diagnosis) == [("hang", "H1", [5])]
    assert [gap.nodes for gap in diagnosis.coverage.gaps if "did not answer" in gap.reason] == [
        ("gpu001",)
    ]


HELLO = {
    "end": {"node": "bad", "protocol": [1, 1], "jobs": {"it's": {"last_ns": 1, "ranks": [99]}}}
}


def _greeting(**changed: Any) -> dict[str, Any]:
    return {"end": {**HELLO["end"], **changed}}


CLOCK = {"end": {"received_ns": 1, "answered_ns": 2}}
HEAD = '{"part": "ops", "rows": 1, "bytes": %d}\\n'
# What a hostile or broken node does when it is asked for evidence.
HOSTILE = {
    "garbage": r"out.write(b'\x00\xff' * 1000)",
    "half a frame": f"out.write(b'{HEAD % 100}abc'); out.flush(); sys.exit()",
    "no parquet": f"out.write(b'{HEAD % 4}abcd' + b'{{\"end\": {{}}}}\\n')",
    "silence": "time.sleep(3600)",
    "never ending": f"while True: out.write(b'{HEAD % 1000}' + b'x' * 1000)",
    "too large": f"out.write(b'{HEAD % 10**15}')",
    "a path": r"""out.write(b'{"part": "../../x", "rows": 1, "bytes": 1}\nx{"end": {}}\n')""",
    "an error": r"""out.write(b'{"error": "disk on fire", "reason": "internal"}\n')""",
}
_SCRIPT = """
import sys, time
out = sys.stdout.buffer
out.write(b"ready\\n")
out.flush()
for line in sys.stdin:
    if '"hello"' in line: out.write({hello!r} + b"\\n")
    elif '"clock"' in line: out.write({clock!r} + b"\\n")
    else:
        {evil}
    out.flush()
"""


class HostileTransport(LocalTransport):
    """Real nodes, and `evils`: by host, what a process answers that answers what it likes."""

    def __init__(
        self,
        folders: dict[str, Path],
        evils: Mapping[str, str],
        silence_s: float = 2.0,
        *,
        hellos: Mapping[str, Any] | None = None,
        clock: Mapping[str, Any] = CLOCK,
    ) -> None:
        super().__init__(folders, in_process=True)
        self.evils, self.hellos = evils, hellos or {}
        self.clock = json.dumps(clock).encode()
        self.silence_s = silence_s

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        if host not in self.evils:
            async with super().connect(host) as connection:
                yield connection
            return
        hello = json.dumps(self.hellos.get(host) or _greeting(node=host)).encode()
        script = _SCRIPT.format(hello=hello, clock=self.clock, evil=self.evils[host])
        child = await Child.start((sys.executable, "-S", "-c", script))
        try:
            await child.output.readline()  # a slow start is no silence
            limits = Limits(part_bytes=10_000, total_bytes=1_000_000)
            yield Connection(host, Pipes(child), silence_s=self.silence_s, limits=limits)
        finally:
            child.end()


class Pipes:
    def __init__(self, child: Child) -> None:
        self.writer, self.reader = child.input, child.output

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def read(self, most_bytes: int) -> bytes:
        return await self.reader.read(most_bytes)

    async def failure(self) -> HostError | None:
        return None


def test_nodes_that_answer_what_they_like_are_gaps_and_the_others_are_diagnosed(
    pair: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncall.fleet.host.LATE_S", 10.0)  # what the silent one takes
    evils = {f"bad{number}": evil for number, evil in enumerate(HOSTILE.values())}
    transport = HostileTransport(pair, evils)
    answer = ask(transport, {**pair, **evils}, rulebooks=HANG_ONLY)
    with answer.incident as incident:
        diagnosis = use_case.diagnose(incident, HANG_ONLY, None)
    assert reported(diagnosis) == [("hang", "H1", [3])]
    assert sorted(node for gap in diagnosis.coverage.gaps for node in gap.nodes) == sorted(evils)


HUGE = 10**30
GREETINGS = {
    "instants": _greeting(jobs={"it's": {"last_ns": HUGE, "ranks": [HUGE]}}, node="instants"),
    "jobs": _greeting(jobs=[1, 2], node="jobs"),
    "steers": _greeting(jobs={"it's\x1b[2J": {"last_ns": 1}}, node="steers"),
    "unnamed": _greeting(node="../../etc\x1b[2J"),
    "nested": _greeting(rings=json.loads("[" * 200 + "]" * 200), node="nested"),
    "gaps": _greeting(gaps=[{"a": HUGE}] * 100, collector="yes", node="gaps"),
}


def test_what_nodes_say_of_themselves_is_not_relied_on(pair: dict[str, Path]) -> None:
    evils = dict.fromkeys(GREETINGS, HOSTILE["no parquet"])
    transport = HostileTransport(pair, evils, hellos=GREETINGS)
    answer = ask(transport, {**pair, **evils}, "it's", rulebooks=HANG_ONLY)
    with answer.incident as incident:
        diagnosis = use_case.diagnose(incident, HANG_ONLY, None)
    assert reported(diagnosis) == [("hang", "H1", [3])]
    assert {host: answer.outcomes[host].node for host in evils} == {host: host for host in evils}


def test_a_clock_that_cannot_be_is_a_gap(pair: dict[str, Path]) -> None:
    clock = {"end": {"received_ns": -HUGE, "answered_ns": HUGE}}
    transport = HostileTransport(pair, {"bad": HOSTILE["garbage"]}, clock=clock)
    answer = ask(transport, {**pair, "bad": None}, rulebooks=HANG_ONLY)
    answer.incident.close()
    assert answer.outcomes["bad"].kind == "protocol"


def test_a_name_that_is_another_nodes_is_not_taken(pair: dict[str, Path]) -> None:
    """Whoever is asked by that name has it, whichever of the two answers first."""
    garbage = {"bad": HOSTILE["garbage"]}
    transport = HostileTransport(pair, garbage, hellos={"bad": _greeting(node="gpu001")})
    for hosts in ({**pair, "bad": None}, {"bad": None, **pair}):
        answer = ask(transport, hosts, rulebooks=HANG_ONLY)
        with answer.incident as incident:
            assert reported(use_case.diagnose(incident, HANG_ONLY, None)) == [("hang", "H1", [3])]
        assert answer.outcomes["gpu001"].kind == "ok"
        assert answer.outcomes["bad"].kind == "protocol"
        assert "reports the node name gpu001, as gpu001 does" in answer.outcomes["bad"].message


def test_a_node_that_answers_a_byte_at_a_time_is_not_waited_for(nodes: dict[str, Path]) -> None:
    slowly = "while True: out.write(b'{'); out.flush(); time.sleep(0.05)"

    async def run() -> Mapping[str, Any]:
        got = nodes["gpu001"] / "slow"
        transport = HostileTransport({}, {"bad": slowly})
        async with Gather(transport, ["bad"], Window(), got, patience_s=1.0) as gather:
            await gather.greet()
            await gather.digest("it's")
            return gather.answers.outcomes

    assert asyncio.run(run())["bad"].kind in ("timeout", "protocol")


def test_a_job_is_found_on_a_node_whose_clock_is_behind(nodes: dict[str, Path]) -> None:
    """Of a window on the console's clock: the node has seen its job an hour ago on its own."""
    now_ns = time.time_ns()
    hour_ns = 3600 * 10**9
    there = {"end": {"received_ns": now_ns - hour_ns, "answered_ns": now_ns - hour_ns}}
    hello = _greeting(jobs={"it's": {"last_ns": now_ns - hour_ns, "ranks": [9]}})

    async def run() -> Mapping[str, Any]:
        transport = HostileTransport(
            {}, {"bad": HOSTILE["garbage"]}, hellos={"bad": hello}, clock=there
        )
        got = nodes["gpu001"] / "behind"
        async with Gather(transport, ["bad"], Window(now_ns - 600 * 10**9), got) as gather:
            return await gather.greet()

    assert choose_job(asyncio.run(run()), None, now_ns - 600 * 10**9) == "it's"


def test_what_has_arrived_when_we_stop_waiting_is_the_answer(pair: dict[str, Path]) -> None:
    async def stop_early() -> Mapping[str, str]:
        all_answered = asyncio.Event()

        def look(progress: Progress) -> None:
            if (progress.phase, progress.answered) == ("digest", len(pair)):
                all_answered.set()

        transport = HostileTransport(pair, {"bad": HOSTILE["silence"]}, silence_s=3600)
        got = pair["gpu001"] / "got"
        async with Gather(transport, (*pair, "bad"), Window(), got, progress=look) as gather:
            await gather.greet()
            waiting = asyncio.create_task(gather.digest("it's"))
            await all_answered.wait()
            gather.stop()
            await waiting
            return {host: o.kind for host, o in gather.answers.outcomes.items()}

    assert asyncio.run(stop_early()) == dict.fromkeys(pair, "ok") | {"bad": "interrupted"}
