"""Parallelism by use: random Megatron layouts, written without a look at the inference."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest

from oncall.evidence import Incident

MS = 1_000_000
MIB = 2**20


class Layout:
    """A training of tp x cp x dp x pp ranks as Megatron numbers them, with the calls of the ranks
    of one column of each kind. Times only have to be ordered as they would be."""

    def __init__(self, seed: int, least: int = 4, most: int = 64) -> None:
        rng = np.random.default_rng(seed)
        self.rng = rng
        while True:
            self.tp = int(rng.choice([1, 2, 4, 8]))
            self.pp = int(rng.choice([1, 1, 2, 3, 4, 8]))
            self.cp = int(rng.choice([1, 1, 1, 2, 4, 8]))
            self.dp = int(rng.choice([1, 2, 4, 8, 16, 32]))
            self.world = self.tp * self.pp * self.cp * self.dp
            if least <= self.world <= most and self.tp * self.dp * self.cp > 1:
                break
        divisors = [n for n in (2, 4, 8) if self.dp % n == 0]
        self.ep = int(rng.choice(divisors)) if divisors and rng.random() < 0.5 else 1
        self.layers = int(rng.integers(6, 11))
        self.micro_batches = int(rng.integers(self.pp, 2 * self.pp + 1))
        self.buckets = int(rng.choice([1, 2, 4]))
        self.iterations = 3
        self.layer_ns = int(rng.uniform(4, 12) * MS)
        self.activation = int(rng.choice([4, 16, 64])) * MIB
        self.gradients = int(rng.choice([256, 1024, 4096])) * MIB
        self.rows: dict[str, list[Any]] = defaultdict(list)
        self.comms: dict[int, tuple[str, tuple[int, ...]]] = {}
        self.groups = 0
        self.count: dict[tuple[int, int, str], int] = defaultdict(int)
        self._groups_of_ranks()
        for rank in range(self.world):
            self._train(rank)

    def _groups_of_ranks(self) -> None:
        grid = np.arange(self.world).reshape(self.pp, self.dp, self.cp, self.tp)
        self.at = {int(grid[i]): i for i in np.ndindex(*grid.shape)}
        self.of: dict[tuple[str, int], int] = {}

        def add(role: str, members: Any) -> None:
            ranks = tuple(int(rank) for rank in members)
            if len(ranks) > 1:
                comm = len(self.comms) + 1
                self.comms[comm] = role, ranks
                for rank in ranks:
                    self.of[role, rank] = comm

        sizes = [range(n) for n in grid.shape]
        for p, d, c in product(*sizes[:3]):
            add("tp", grid[p, d, c])
        for p, d, t in product(sizes[0], sizes[1], sizes[3]):
            add("cp", grid[p, d, :, t])
        for d, c, t in product(*sizes[1:]):
            add("pp", grid[:, d, c, t])
        for p, t in product(sizes[0], sizes[3]):
            add("dp", grid[p, :, :, t].ravel())
        if self.ep > 1:
            for p, c, t in product(sizes[0], sizes[2], sizes[3]):
                for begin in range(0, self.dp, self.ep):
                    add("ep", grid[p, begin : begin + self.ep, c, t])
        add("world", range(self.world))

    def _call(self, rank: int, role: str, op: str, size: int, now: int, peer: int | None = None,
              group: int | None = None) -> None:  # fmt: skip
        comm = self.of.get((role, rank))
        if comm is None:
            return
        kind = "coll" if peer is None else "p2p"
        self.count[comm, rank, kind] += 1
        values = (comm, kind, self.count[comm, rank, kind], rank, op, size, now, peer, group)
        names = ("comm", "kind", "seq", "rank", "op", "bytes", "started_ns", "peer", "group_id")
        for name, value in zip(names, values, strict=True):
            self.rows[name].append(value)

    def _train(self, rank: int) -> None:
        p, _, c, _ = self.at[rank]
        chain = self.comms[self.of["pp", rank]][1] if self.pp > 1 else (rank,)
        now = 0
        warm_up = min(self.pp - p - 1, self.micro_batches)
        for _ in range(self.iterations):
            order = ["F"] * warm_up
            order += ["F", "B"] * (self.micro_batches - warm_up) + ["B"] * warm_up
            for pass_ in order:
                before, after = (p - 1, p + 1) if pass_ == "F" else (p + 1, p - 1)
                if 0 <= before < self.pp:
                    self.groups += 1
                    self._call(rank, "pp", "Recv", self.activation, now, chain[before], self.groups)
                now = self._layers(rank, c, now)
                if 0 <= after < self.pp:
                    self.groups += 1
                    self._call(rank, "pp", "Send", self.activation, now, chain[after], self.groups)
                now += MS
            for op in ("ReduceScatter", "AllGather"):
                for _ in range(self.buckets):
                    self._call(rank, "dp", op, self.gradients // self.buckets, now)
                    now += 5 * MS
            self._call(rank, "world", "AllReduce", 8, now)
            now += 10 * MS

    def _layers(self, rank: int, place: int, now: int) -> int:
        for _ in range(self.layers):
            for op in ("AllGather", "ReduceScatter"):
                self._call(rank, "tp", op, self.activation, now)
                now += self.layer_ns // 2
            if self.cp > 1:
                ring = self.comms[self.of["cp", rank]][1]
                for _ in range(self.cp - 1):
                    self.groups += 1
                    to, from_ = ring[(place + 1) % self.cp], ring[place - 1]
                    self._call(rank, "cp", "Send", self.activation, now, to, self.groups)
                    self._call(rank, "cp", "Recv", self.activation, now, from_, self.groups)
                    now += MS // 2
            for _ in range(2 if self.ep > 1 else 0):
                self.groups += 1
                for peer in self.comms[self.of["ep", rank]][1]:
                    for op in ("Send", "Recv"):
                        size = int(self.activation * self.rng.uniform(0.1, 0.5))
                        self._call(rank, "ep", op, size, now, peer, self.groups)
                now += self.layer_ns // 4
        return now

    def incident(self) -> Incident:
        incident = Incident.empty()
        shown = [(c, r, i, len(m)) for c, (_, m) in self.comms.items() for i, r in enumerate(m)]
        names = ("comm", "rank", "comm_rank", "size")
        columns = dict(zip(names, map(list, zip(*shown, strict=True)), strict=True))
        incident.append("comms", {"job": "j", **columns})
        sizes = {name: [getattr(self, name)] for name in ("tp", "pp", "dp", "ep", "cp")}
        incident.append("jobs", {"job": ["j"], "world_size": [self.world], **sizes})
        incident.append("ops", {"job": "j", **self.rows})
        return incident


def wrongly_stated(seed: int, least: int = 4, most: int = 64) -> list[str]:
    layout = Layout(seed, least, most)
    with layout.incident() as incident:
        incident.require(["parallelism"])
        found = incident.con.execute(
            "SELECT comm, parallelism, because, configured FROM parallelism"
        ).fetchall()
    truth = {comm: role for comm, (role, _) in layout.comms.items()}
    shape = f"tp {layout.tp} cp {layout.cp} dp {layout.dp} pp {layout.pp} ep {layout.ep}"
    assert len(found) == len(truth)
    return [
        f"seed {seed}, {shape}: {truth[comm]} inferred as {role} ({because}), job: {configured}"
        for comm, role, because, configured in found
        if role != (None if truth[comm] == "world" else truth[comm]) or configured is not None
    ]


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_random_layouts_are_reported_by_their_use(seed: int) -> None:
    assert wrongly_stated(seed) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeds", "least", "most"), [(range(100, 112), 65, 512), (range(200, 203), 513, 1024)]
)
def test_groups_of_many_random_layouts_are_reported_by_their_use(
    seeds: range, least: int, most: int
) -> None:
    assert [wrong for seed in seeds for wrong in wrongly_stated(seed, least, most)] == []


def test_a_configuration_that_its_use_contradicts_is_reported() -> None:
    layout = Layout(0)
    with layout.incident() as incident:
        incident.con.execute("UPDATE jobs SET tp = 3, dp = 5, pp = 7, ep = 9, cp = 11")
        incident.require(["parallelism"])
        rows = incident.con.execute(
            "SELECT DISTINCT parallelism FROM parallelism WHERE configured IS NOT NULL"
        ).fetchall()
    used = {role for role, _ in layout.comms.values()} - {"world"}
    assert {role for (role,) in rows} == used
