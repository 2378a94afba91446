"""Nodes that probe one another: real endpoints, real sockets, and hosts that will not or cannot."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncall.cli.probe import _peers
from oncall.cli.probe import probe as command
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.fleet.local import LocalTransport
from oncall.fleet.merge import Answers, merge_measured
from oncall.fleet.probe import Probed, ProbeOrder, probe_fleet
from oncall.fleet.transport import Connection
from oncall.node.ping.ping import Pinger, Target
from oncall.node.ping.stamped_socket import StampedSocket
from oncall.node.store.parts import ReceivedPart
from oncall.node.store.probe_request import parse_probe
from oncall.node.store.wire import WireError
from oncall.render.text import probe as report
from oncall.views.probe import summarise

from ..command import oncall
from .tree.gateways import DIES, Counted, Gateways

NODES = ("gpu001", "gpu002", "gpu003")
NODE = (sys.executable, "-m", "oncall.cli.node", "serve", "--sealed")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    found = {node: tmp_path / node for node in NODES}
    for folder in found.values():
        folder.mkdir()
    return found


def probe(transport: Any, hosts: tuple[str, ...] = NODES, **order: Any) -> Probed:
    return asyncio.run(
        probe_fleet(transport, hosts, ProbeOrder(**({"count": 3} | order)), patience_s=60)
    )


def rows(probed: Probed, query: str) -> list[tuple[Any, ...]]:
    with probed.incident as incident:
        return incident.con.execute(query).fetchall()


# --------------------------------------------------------------------------- probes


def test_every_node_pings_every_other_as_often_as_reported(folders: dict[str, Path]) -> None:
    probed = probe(LocalTransport(folders))  # children, as over SSH
    assert {outcome.kind for outcome in probed.outcomes.values()} == {"ok"}
    found = rows(
        probed,
        "SELECT node, target_node, count(*), count_if(lost), min(rtt_ns) > 0 FROM pings "
        "GROUP BY ALL ORDER BY ALL",
    )
    pairs = [(one, other) for one in NODES for other in NODES if one != other]
    assert found == [(one, other, 3, 0, True) for one, other in pairs]
    assert set(probed.without_rdma)  # and that is said


def test_nodes_behind_gateways_ping_one_another(folders: dict[str, Path]) -> None:
    """gpu001 and gpu002 behind one that works, gpu003 behind one that does not."""
    direct, gateways = Counted(folders), Gateways(folders, {"gw2": DIES})
    order = ProbeOrder(count=3, bandwidth=True)
    probed = asyncio.run(probe_fleet(direct, NODES, order, patience_s=60, tree=gateways.tree()))
    assert {outcome.kind for outcome in probed.outcomes.values()} == {"ok"}
    assert set(probed.lost_gateways) == {"gw2"}
    assert direct.connections == ["gpu003"]
    with probed.incident as incident:
        pings = incident.con.execute(
            "SELECT node, target_node, count(*), count_if(lost) FROM pings "
            "GROUP BY ALL ORDER BY ALL"
        ).fetchall()
        sent = incident.con.execute("SELECT DISTINCT node FROM bandwidths ORDER BY ALL").fetchall()
        assert incident.rows("clocks") == len(NODES)
    assert pings == [(one, other, 3, 0) for one in NODES for other in NODES if one != other]
    assert sent == [(node,) for node in NODES]


def test_one_node_asks_all_and_bytes_go_to_its_neighbour(folders: dict[str, Path]) -> None:
    probed = probe(LocalTransport(folders, in_process=True), sources=["gpu002"], bandwidth=True)
    with probed.incident as incident:
        assert incident.con.execute("SELECT DISTINCT node FROM pings").fetchall() == [("gpu002",)]
        [(node, target, sent, took_ns)] = incident.con.execute(
            "SELECT node, target_node, bytes, duration_ns FROM bandwidths"
        ).fetchall()
        summary = summarise(incident.con)
    assert (node, target) == ("gpu002", "gpu003")
    assert 0 < sent <= 128 * 2**20 and 0 < took_ns < 60 * 10**9
    assert [stream.bytes_per_s for stream in summary.streams] == [sent * 1e9 / took_ns]
    text = report.to_text(probed, summary)
    assert "gpu002" in text and "one TCP stream" in text and max(map(len, text.splitlines())) <= 80
    assert json.loads(report.to_json(probed, summary))["schema"] == 1


def test_what_is_wrong_with_the_order_is_said(folders: dict[str, Path]) -> None:
    transport = LocalTransport(folders, in_process=True)
    with pytest.raises(UsageError, match="not one of the nodes"):
        probe(transport, sources=["gpu009"])
    with pytest.raises(UsageError, match="needs two nodes that answer"):
        probe(transport, ("gpu001", "gpu009"))


# ------------------------------------------------------------- nodes that are not probed


class Altered:
    """A transport of which one host's `hello` is altered, or whose endpoint gets arguments."""

    def __init__(self, folders: dict[str, Path], host: str, alter: Any) -> None:
        self._inner = LocalTransport(folders, in_process=True)
        self._host, self._alter = host, alter

    @asynccontextmanager
    async def connect(self, host: str) -> AsyncIterator[Connection]:
        async with self._inner.connect(host) as connection:
            if host == self._host:
                asked = connection.ask

                async def ask(request: Any, sink: Any = None, **more: Any) -> Any:
                    end = await asked(request, sink, **more)
                    self._alter(request, end.status)
                    return end

                connection.ask = ask  # type: ignore[method-assign]
            yield connection


def _older(request: Any, status: dict[str, Any]) -> None:
    if request.ask == "hello":
        del status["asks"]


def _reading(request: Any, status: dict[str, Any]) -> None:
    if request.ask == "hello":
        status["asks"].remove("probe")


def _vague(request: Any, status: dict[str, Any]) -> None:
    if request.ask == "probe" and "listening" in status:
        status["listening"] = {"udp_port": "here"}


@pytest.mark.parametrize(
    ("alter", "kind", "message"),
    [
        (_older, "version", "does not support probes: upgrade it"),
        (_reading, "error", "read-only"),
        (_vague, "protocol", "where it listens"),
    ],
)
def test_a_node_that_cannot_be_probed_is_named_and_the_others_go_on(
    folders: dict[str, Path], alter: Any, kind: str, message: str
) -> None:
    probed = probe(Altered(folders, "gpu002", alter))
    outcome = probed.outcomes["gpu002"]
    assert outcome.kind == kind and message in outcome.message
    assert rows(probed, "SELECT DISTINCT node FROM pings ORDER BY ALL") == [
        ("gpu001",),
        ("gpu003",),
    ]


def test_measurements_that_cannot_be_read_are_reported_with_their_host(tmp_path: Path) -> None:
    garbage = tmp_path / "part.parquet"
    garbage.write_bytes(b"PAR1 and no more")
    incident, bad = merge_measured(
        Answers([ReceivedPart("gpu001", "pings", 3, garbage)], outcomes={}, clocks={})
    )
    with incident:
        assert incident.rows("pings") == 0
    assert list(bad) == ["gpu001"] and "parquet" in bad["gpu001"].lower()


def test_a_target_that_leaves_is_stated_and_no_bogus_row(folders: dict[str, Path]) -> None:
    def closed(request: Any, status: dict[str, Any]) -> None:
        if "listening" in status and request.probe and request.probe["do"] == "listen":
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                status["listening"]["udp_port"] = free.getsockname()[1]

    probed = probe(Altered(folders, "gpu002", closed))
    assert rows(probed, "SELECT count(*) FROM pings WHERE target_node = 'gpu002'") == [(0,)]
    assert any("nothing answers pings on gpu002" in said for said in probed.odd["gpu001"])


# ----------------------------------------------------------------------- the endpoint


@contextmanager
def endpoint(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*NODE, "--data-dir", str(folder), "--node", "gpu001", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(60)


def ask(process: subprocess.Popen[bytes], reported: dict[str, Any]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps(reported).encode() + b"\n")
    process.stdin.flush()
    answer: dict[str, Any] = json.loads(process.stdout.readline())
    return answer


def test_a_reading_key_refuses_to_probe_and_goes_on_reading(tmp_path: Path) -> None:
    with endpoint(tmp_path, "--read-only") as process:
        reported = ask(process, {"ask": "probe", "probe": {"do": "listen"}})
        assert reported["reason"] == "read-only" and "may not probe" in reported["error"]
        assert "probe" not in ask(process, {"ask": "hello"})["end"]["asks"]


def _answers(address: tuple[str, int]) -> bool:
    """Whether a ping is answered; False once it is refused."""
    pinger = Pinger("test", StampedSocket(), 60 * 10**9)
    poll = select.poll()
    poll.register(pinger.fileno(), select.POLLIN)
    pinger.send(Target("node", address))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not pinger.oddities.refused:
        poll.poll(50)
        if pinger.ended():
            pinger.close()
            return True
    pinger.close()
    assert time.monotonic() < deadline, "neither answered nor refused"
    return False


def test_a_probe_under_way_ends_when_the_console_is_gone(tmp_path: Path) -> None:
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 0))
    target = {"here": 0, "node": "b", "nic": "", "address": "127.0.0.1"}
    target |= {"udp_port": silent.getsockname()[1], "tcp_port": 0}
    process = subprocess.Popen(
        [*NODE, "--data-dir", str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    assert process.stdin is not None
    asked = {"ask": "probe", "probe": {"do": "ping", "targets": [target] * 10, "count": 200}}
    process.stdin.write(json.dumps(asked).encode() + b"\n")
    process.stdin.flush()
    silent.settimeout(30)
    silent.recv(100)  # it pings: ten seconds' worth
    began = time.monotonic()
    process.stdin.close()
    process.wait(30)
    assert time.monotonic() - began < 8
    silent.close()


def test_a_single_question_cannot_be_a_probe(tmp_path: Path) -> None:
    done = subprocess.run(
        [*NODE[:3], "query", '{"ask": "probe", "probe": {"do": "listen"}}', "--data-dir", tmp_path],
        capture_output=True,
        timeout=60,
    )
    assert "oncall node serve" in json.loads(done.stdout)["error"]


# ------------------------------------------------------------------------- its bounds

TARGET = {"here": 0, "node": "b", "nic": "", "address": "::1", "udp_port": 1, "tcp_port": 2}


@pytest.mark.parametrize(
    "reported",
    [
        None,
        {"do": "exec"},
        {"do": "ping", "count": 100_000},
        {"do": "ping", "count": True},
        {"do": "ping", "targets": [TARGET] * 300},
        {"do": "ping", "targets": [TARGET] * 200, "count": 100},
        {"do": "ping", "targets": [{}]},
        {"do": "ping", "targets": [TARGET | {"address": "example.com"}]},
        {"do": "ping", "targets": [TARGET | {"udp_port": -1}]},
        {"do": "ping", "targets": [TARGET | {"node": "\x1b[2J"}]},
        {"do": "ping", "targets": "all"},
    ],
)
def test_what_goes_beyond_is_refused(reported: Any) -> None:
    with pytest.raises(WireError) as raised:
        parse_probe(reported)
    assert raised.value.reason == "request"


# ------------------------------------------------------------------------ the command


def test_the_command_shows_saves_and_adds(tmp_path: Path) -> None:
    for node in NODES[:2]:
        (tmp_path / node).mkdir()
    saved = tmp_path / "probe.oncall"
    few = ("probe", f"local:{tmp_path}/gpu*", "--count", "2", "--from", "gpu[001-002]")
    first = oncall(*few, "--save", saved)
    assert first.returncode == 0, first.stderr
    assert "worst pairs" in first.stdout
    second = oncall(*few, "--into", saved, "--format", "json")
    assert json.loads(second.stdout)["nodes"]
    with Incident.open(saved) as incident:
        assert incident.rows("pings") == 2 * 2 * 2
        assert incident.rows("clocks") == 2 * 2


def test_a_node_alone_needs_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpu001").mkdir()
    with pytest.raises(UsageError, match="give others besides gpu001"):
        command(f"local:{tmp_path}/gpu001")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu[001-064]")
    peers = _peers("gpu007", "gpu007")
    assert len(set(peers)) == 8 and "gpu007" not in peers


def test_saving_anew_and_adding_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="give only one of them"):
        command("local:/", save=tmp_path / "a.oncall", into=tmp_path / "b.oncall")
