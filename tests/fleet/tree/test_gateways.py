"""A gather through gateways: real processes on both hops, and gateways that fail."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.cli.terminal import report_lost
from oncall.evidence.incident import Incident
from oncall.evidence.schema import TABLES
from oncall.fleet.ask import Answer, ask_fleet
from oncall.fleet.branch import Tree
from oncall.fleet.gather import Gather, Window
from oncall_lab import TrainingScenario, simulate
from oncall_lab.training.fault import TrainingFault

from .gateways import DIES, Counted, Gateways

WriteNodes = Callable[..., dict[str, Path]]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory, write_nodes: WriteNodes) -> dict[str, Path]:
    fault = TrainingFault("H1", ranks=(3,), at_ns=8 * 10**9)
    job = TrainingScenario(job="llama", tp=2, pp=1, dp=4, gpus_per_node=2, faults=(fault,))
    with simulate(job)[0] as incident:
        return write_nodes(incident, tmp_path_factory.mktemp("tree"), 1)


def ask(direct: Counted, nodes: Mapping[str, Path], tree: Tree | None) -> Answer:
    started = ask_fleet(
        direct, tuple(sorted(nodes)), None, Window(), lambda _: {1}, patience_s=60, tree=tree
    )
    return asyncio.run(started)


def rows(incident: Incident) -> dict[str, list[str]]:
    """All rows of all tables but clocks, which differ from measurement to measurement."""
    return {
        table.name: sorted(map(repr, incident.con.execute(f"FROM {table.name}").fetchall()))
        for table in TABLES
        if table.name != "clocks"
    }


def test_through_gateways_arrives_what_arrives_directly(nodes: dict[str, Path]) -> None:
    gateways, direct, unused = Gateways(nodes), Counted(nodes), Counted(nodes)
    with ask(direct, nodes, None).incident as expected:
        answer = ask(unused, nodes, gateways.tree())
        with answer.incident as incident:
            assert rows(incident) == rows(expected)
            assert incident.rows("ops") > 0
            # A clock a node, with the errors of two measurements.
            clocks = incident.con.execute("SELECT node, error_ns FROM clocks").fetchall()
            assert {node for node, _ in clocks} == set(nodes)
            assert all(error_ns >= 2 for _, error_ns in clocks)
    assert unused.connections == []
    assert sorted(gateways.connections) == ["gw1", "gw2"]
    assert {outcome.kind for outcome in answer.outcomes.values()} == {"ok"}
    assert not answer.lost_gateways


DIES_IN_ITS_ANSWER = (
    f"{shlex.quote(sys.executable)} -c 'import sys, time; from oncall.cli.node import main; "
    "import oncall.fleet.tree.gateway as g; write = g._write; "
    "g._write = lambda order, *rest: "
    'sys.exit(3) if "digest" in str(order) else write(order, *rest); '
    'main(["gather", "--hosts", "local:FOLDER/*"])\''
)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("sh -c 'echo sh: oncall: command not found >&2; exit 127'", "not found"),
        (shlex.join((sys.executable, "-m", "oncall.cli.node", "serve")), "gathers from no nodes"),
        (DIES, "status 1"),
        (DIES_IN_ITS_ANSWER, ""),
    ],
    ids=["without oncall", "an older oncall", "dies at once", "dies in its answer"],
)
def test_the_nodes_of_a_gateway_that_fails_are_asked_directly(
    nodes: dict[str, Path], program: str, why: str
) -> None:
    folder = next(iter(nodes.values())).parent
    gateways = Gateways(nodes, {"gw2": program.replace("FOLDER", str(folder))})
    direct = Counted(nodes)
    answer = ask(direct, nodes, gateways.tree())
    with answer.incident as incident, ask(Counted(nodes), nodes, None).incident as expected:
        assert rows(incident) == rows(expected)
    assert set(answer.lost_gateways) == {"gw2"}
    assert why in answer.lost_gateways["gw2"]
    # Each once, and none of those behind the gateway that works.
    assert sorted(direct.connections) == sorted(nodes)[len(nodes) // 2 :]


def test_looks_go_on_when_a_gateway_ends_between_them(
    nodes: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then its nodes are asked directly, and through it again once it is back."""
    gateways, direct = Gateways(nodes), Counted(nodes)

    async def looks() -> None:
        tree = gateways.tree()
        async with Gather(
            direct, sorted(nodes), Window(), tmp_path, patience_s=60, tree=tree
        ) as gather:
            for number in range(4):
                folder = tmp_path / str(number)
                folder.mkdir()
                gather.again(Window(), folder)
                outcomes = await gather.greet()
                assert {outcome.kind for outcome in outcomes.values()} == {"ok"}, number
                await gather.digest("llama")
                assert {o.kind for o in gather.answers.outcomes.values()} == {"ok"}, number
                senders = {part.sender for part in gather.parts}
                half = set(sorted(nodes)[len(nodes) // 2 :])
                assert senders == ({"gw1", "gw2"} if number in (0, 3) else {"gw1", *half})
                if number == 0:
                    gather._branches["gw2"].gateway.leave()
                if number == 2:
                    monkeypatch.setattr("oncall.fleet.branch.GATEWAY_RETRY_S", 0.0)

    asyncio.run(looks())


def test_nodes_that_cannot_be_asked_at_all_name_their_gateway(nodes: dict[str, Path]) -> None:
    names = sorted(nodes)
    gateways = Gateways(nodes, {"gw2": DIES})
    reachable = {name: nodes[name] for name in names[: len(names) // 2]}
    answer = ask(Counted(reachable), nodes, gateways.tree())
    answer.incident.close()
    for name in names[len(names) // 2 :]:
        outcome = answer.outcomes[name]
        assert outcome.kind == "refused"
        assert "its gateway gw2: sh ended with status 1" in outcome.message


def test_a_node_that_its_gateway_cannot_reach_is_a_gap_of_its_own(nodes: dict[str, Path]) -> None:
    gateways = Gateways(nodes)
    names = [*sorted(nodes), "gpu999"]
    tree = replace(gateways.tree(), gateway_of={name: "gw1" for name in names})
    direct = Counted(nodes)
    started = ask_fleet(direct, names, None, Window(), lambda _: (), patience_s=60, tree=tree)
    answer = asyncio.run(started)
    with answer.incident as incident:
        problems = dict(
            incident.con.execute(
                "SELECT node, error FROM collectors WHERE source = 'gather' AND error IS NOT NULL"
            ).fetchall()
        )
    assert list(problems) == ["gpu999"]
    assert "no such folder" in problems["gpu999"]
    assert direct.connections == []


def test_a_gateway_with_a_wrong_clock_shifts_no_instant(nodes: dict[str, Path]) -> None:
    """Its clock is two hours ahead; the nodes' clocks are this machine's."""
    folder = next(iter(nodes.values())).parent
    ahead = (
        f"{shlex.quote(sys.executable)} -c 'import time; now = time.time_ns; "
        "time.time_ns = lambda: now() + 7200 * 10**9; from oncall.cli.node import main; "
        f'main(["gather", "--hosts", "local:{folder}/*"])\''
    )
    gateways = Gateways(nodes, {"gw1": ahead})
    answer = ask(Counted(nodes), nodes, gateways.tree())
    with answer.incident as incident:
        offsets = incident.con.execute("SELECT node, offset_ns, error_ns FROM clocks").fetchall()
    assert len(offsets) == len(nodes)
    assert all(abs(offset_ns) <= error_ns + 10**6 for _, offset_ns, error_ns in offsets)
    assert not answer.lost_gateways


def test_who_stops_waiting_gets_what_the_gateway_has(
    nodes: dict[str, Path], tmp_path: Path
) -> None:
    """One node behind it never answers: the others are not lost with it."""
    folder = next(iter(nodes.values())).parent
    program = (
        f"{shlex.quote(sys.executable)} -c 'import asyncio, oncall.fleet.local as l; "
        "from contextlib import asynccontextmanager as acm; real = l.LocalTransport.connect\n"
        "@acm\nasync def connect(self, host):\n"
        f'    if host == "{sorted(nodes)[0]}": await asyncio.Event().wait()\n'
        "    async with real(self, host) as c: yield c\n"
        "l.LocalTransport.connect = connect\nfrom oncall.cli.node import main\n"
        f'main(["gather", "--hosts", "local:{folder}/*"])\''
    )
    gateways = Gateways(nodes, {"gw1": program})

    async def interrupted() -> dict[str, str]:
        gather = Gather(
            Counted(nodes), sorted(nodes), Window(), tmp_path, patience_s=60, tree=gateways.tree()
        )
        async with gather:
            asyncio.get_running_loop().call_later(6.0, gather.stop)
            await gather.greet()
            return {name: outcome.kind for name, outcome in gather.answers.outcomes.items()}

    kinds = asyncio.run(interrupted())
    first = sorted(nodes)[0]
    assert kinds == dict.fromkeys(nodes, "ok") | {first: "interrupted"}


def test_a_command_says_which_gateways_failed(capsys: pytest.CaptureFixture[str]) -> None:
    report_lost({"gw01": "gw01 refused", "gw02": "gw02 refused", "gw07": "not in its PATH"})
    assert capsys.readouterr().err.splitlines() == [
        "oncall: gateway gw[01-02]: HOST refused; its nodes are asked directly",
        "oncall: gateway gw07: not in its PATH; its nodes are asked directly",
    ]
