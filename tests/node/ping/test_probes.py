"""The source of probes: whom it pings, how often, and what it says of whom it cannot."""

from __future__ import annotations

import random
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from oncall.core.errors import BadInput
from oncall.node.agent.agent import Agent
from oncall.node.common.config import Configuration, load
from oncall.node.common.source import read_clock
from oncall.node.ping.flights import Oddities
from oncall.node.ping.local_nics import LocalNic, Pair, Turns, local_nics, pairs
from oncall.node.ping.probes import ProbeOptions, ProbeSource

MS = 1_000_000
NICS = [LocalNic(f"mlx5_{k}", f"eth{k}", f"10.0.{k}.1", 1) for k in range(2)]


# ----------------------------------------------------------------------- the pinglist


def test_by_rail_each_nic_pings_its_like_and_by_mesh_every_one() -> None:
    name = "{node}-rail{rail}"
    assert pairs(NICS, ["b"], "rail", name) == [Pair(0, "b", "b-rail0"), Pair(1, "b", "b-rail1")]
    assert len(pairs(NICS, ["b", "c"], "mesh", name)) == 8
    # Where all NICs of a node have one name, there is one target for each NIC here.
    assert len(pairs(NICS, ["b", "c"], "mesh", "{node}")) == 4


def test_each_pair_has_its_turn_once_a_round_and_rounds_differ() -> None:
    listed = pairs(NICS, [f"gpu{n}" for n in range(8)], "rail", "{node}")
    turns = Turns(listed, random.Random(1))
    rounds = [[turns.next() for _ in listed] for _ in range(3)]
    assert all(Counter(one) == Counter(listed) for one in rounds)
    assert rounds[0] != rounds[1]
    assert Turns([], random.Random(1)).next() is None


def test_rdma_ports_with_addresses_are_the_rails_in_order(tmp_path: Path) -> None:
    for device, interface in (("mlx5_10", "lo"), ("mlx5_2", "lo"), ("mlx5_3", "none-such")):
        ndevs = tmp_path / "sys/class/infiniband" / device / "ports/1/gid_attrs/ndevs"
        ndevs.mkdir(parents=True)
        (ndevs / "0").write_text(interface + "\n")
    found = local_nics(tmp_path)
    assert [nic.nic for nic in found] == ["mlx5_2", "mlx5_10"]
    assert found[0] == LocalNic("mlx5_2", "lo", "127.0.0.1", 1)


def test_without_rdma_the_default_interface_is_the_only_rail(tmp_path: Path) -> None:
    [nic] = local_nics(tmp_path)
    assert nic.nic == nic.interface in {name for _, name in socket.if_nameindex()}
    assert nic.port == 0


# -------------------------------------------------------------------------- the source


@pytest.fixture
def probing(config: Configuration) -> Configuration:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return replace(
        config,
        sources=("probes",),
        root=config.data_dir,  # no RDMA there
    ).with_source("probes", every_ns=2 * MS, address="127.0.0.1", port=port)


def source_of(config: Configuration) -> ProbeSource:
    return ProbeSource(config.source_options.of(ProbeOptions), config.node, config.root)


@contextmanager
def responder(probing: Configuration) -> Iterator[ProbeSource]:
    source = source_of(replace(probing, node="gpu018").with_source("probes", respond=True))
    source.collect(read_clock())
    yield source
    source.close()


def test_pings_end_up_in_a_shard(
    probing: Configuration,
    make_agent: Callable[..., Agent],
    until: Callable[[Callable[[], object]], None],
    sealed_rows: Callable[[str], list[tuple[object, ...]]],
) -> None:
    with responder(probing):
        agent = make_agent(
            sources=probing.sources,
            root=probing.root,
            source_options=probing.source_options.changed(
                "probes", targets=("127.0.0.1",), address=""
            ),
        )
        until(lambda: agent.step() or agent._accounts["probes"].rows >= 10)
        agent.finish()
    [(cpu_ns,)] = sealed_rows("SELECT max(cpu_ns) FROM collectors WHERE source = 'probes'")
    assert isinstance(cpu_ns, int) and cpu_ns > 0
    rows = sealed_rows(
        "SELECT node, target_node, kind, lost, rtt_ns > 0, target_ns > 0, clock FROM pings"
    )
    assert len(rows) >= 10
    answered = [row for row in rows if not row[3]]
    assert {row[:3] for row in rows} == {("gpu017", "127.0.0.1", "network")}
    assert answered and all(row[4:6] == (True, True) for row in answered)
    assert {row[6] for row in answered} <= {"kernel", "program"}


def test_without_being_reported_nobody_is_pinged_and_nothing_listens(config: Configuration) -> None:
    source = source_of(config)
    collected = source.collect(read_clock())
    assert not collected.batches and not collected.problems
    assert len(collected.notes) == 2
    source.close()


def test_whom_nothing_answers_for_and_whom_nobody_knows_are_named(
    probing: Configuration, until: Callable[[Callable[[], object]], None]
) -> None:
    targets = ("127.0.0.1", "no-such-node.invalid", probing.node)
    source = source_of(probing.with_source("probes", targets=targets))
    said: set[str] = set()

    def both_are_stored() -> bool:
        collected = source.collect(read_clock())
        assert not collected.batches  # no row of a loss where nothing was there to answer
        said.update(sentence.partition(":")[0] for sentence in collected.problems)
        return {"nothing answers pings on 127.0.0.1", "cannot ping no-such-node.invalid"} <= said

    until(both_are_stored)
    assert not any(probing.node in sentence for sentence in said)  # never itself
    source.close()


def test_a_port_that_is_taken_is_said(probing: Configuration) -> None:
    with responder(probing), responder(probing) as second:
        problems = second.collect(read_clock()).problems
    assert any("cannot answer pings at 127.0.0.1:" in problem for problem in problems)


# ------------------------------------------------------------------- its configuration


def test_the_pinglist_is_a_node_set_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "collect.toml"
    path.write_text(
        '[probes]\ntargets = ["gpu[001-003]", "login"]\nby = "mesh"\nport = 9000\n'
        'rail_name = "{node}-ib{rail}"\ntimeout = "200 ms"\n'
    )
    reported = load(path).source_options.of(ProbeOptions)
    assert reported.targets == ("gpu001", "gpu002", "gpu003", "login")
    assert (reported.by, reported.port, reported.timeout_ns) == ("mesh", 9000, 200 * MS)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('targets = "gpu[1-"', "not a node set"),
        ('by = "ring"', '"mesh" or "rail"'),
        ("port = 70000", "port from 1 to 65535"),
        ('rail_name = "{host}"', "{node} and {rail} only"),
    ],
)
def test_what_is_wrong_with_it_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "collect.toml"
    path.write_text("[probes]\n" + text)
    with pytest.raises(BadInput) as raised:
        load(path)
    assert problem in raised.value.problem


def test_oddities_are_reported_as_what_came_since() -> None:
    before = Oddities(late=1, refused=Counter({"a": 2, "b": 1}))
    total = Oddities(late=3, impossible=1, refused=Counter({"a": 2, "b": 4}))
    assert total.since(before) == Oddities(late=2, impossible=1, refused=Counter({"b": 3}))
    assert total.since(total).sentences() == ()
