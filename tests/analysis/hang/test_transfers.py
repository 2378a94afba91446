"""Transfers: rings played step by step until something stops, then followed back to it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.hang.transfers import IN_FLIGHT, End, Operation, Transfer, merged
from oncall.evidence import Incident

FIFO = 4  # steps a sender may be ahead of its receiver


class Ring:
    """A ring of ranks, each on its own host, that passes `steps` pieces on until nothing moves.

    A kernel fills its first piece, then for each piece that arrives consumes it and fills the
    next. `gpu` stops before its kernel's `after`-th move; what touches `nic` never arrives.
    """

    def __init__(
        self, size: int, steps: int, after: int, gpu: int | None = None, nic: int | None = None
    ) -> None:
        self.size, self.steps, self.after, self.gpu, self.nic = size, steps, after, gpu, nic
        self.moves = [0] * size  # of each kernel: move j consumes piece j - 1 and fills piece j
        self.posted = [0] * size
        self.arrived = [0] * size
        while any([self._kernel(r) or self._post(r) or self._wire(r) for r in range(size)]):
            pass

    def filled(self, rank: int) -> int:
        return min(self.moves[rank], self.steps)

    def consumed(self, rank: int) -> int:
        return max(0, self.moves[rank] - 1)

    def _kernel(self, rank: int) -> bool:
        move, following = self.moves[rank], (rank + 1) % self.size
        if move > self.steps or (rank == self.gpu and move >= self.after):
            return False
        if move and self.arrived[rank] < move:
            return False
        if move < self.steps and self.filled(rank) - self.consumed(following) >= FIFO:
            return False
        self.moves[rank] += 1
        return True

    def _post(self, rank: int) -> bool:
        credit = self.consumed((rank + 1) % self.size) + FIFO - 1
        if self.posted[rank] >= min(self.filled(rank), credit):
            return False
        self.posted[rank] += 1
        return True

    def _wire(self, rank: int) -> bool:
        following = (rank + 1) % self.size
        broken = self.nic in (rank, following) and self.posted[rank] > self.after
        if self.arrived[following] >= self.posted[rank] or broken:
            return False
        self.arrived[following] += 1
        return True

    def operation(self) -> Operation:
        """What the proxies say of it."""
        found = Operation({}, frozenset(range(self.size)))
        for rank in range(self.size):
            following = (rank + 1) % self.size
            delivered, consumed = self.arrived[following], self.consumed(following)
            sending = "send_wire" if self.posted[rank] > delivered else "send_gpu"
            if sending == "send_gpu" and self.filled(rank) > self.posted[rank]:
                sending = "send_peer"
            found.add(
                Transfer(rank, following, 0, True, sending, delivered), delivered == self.steps
            )
            receiving = "recv_gpu" if delivered > consumed else "recv_wire"
            found.add(
                Transfer(following, rank, 0, False, receiving, consumed), consumed == self.steps
            )
        return found


def ends(operation: Operation) -> set[End | None]:
    found = {t: operation.end_of(t) for t in operation.transfers()}
    shown = merged({t: end for t, end in found.items() if end is not None})
    return {shown.get(t) for t in found}


rings = st.tuples(st.integers(2, 7), st.integers(1, 30))


@settings(max_examples=50, deadline=None)
@given(rings, st.data())
def test_every_chain_leads_to_the_gpu_that_stopped(size: tuple[int, int], data: Any) -> None:
    ranks, steps = size
    gpu = data.draw(st.integers(0, ranks - 1))
    ring = Ring(ranks, steps, data.draw(st.integers(0, steps)), gpu=gpu)
    assert {end and end.ranks for end in ends(ring.operation())} == {(gpu,)}


@settings(max_examples=50, deadline=None)
@given(st.tuples(st.integers(3, 7), st.integers(1, 30)), st.data())
def test_every_chain_leads_to_the_nic_that_stopped(size: tuple[int, int], data: Any) -> None:
    ranks, steps = size
    nic = data.draw(st.integers(0, ranks - 1))
    ring = Ring(ranks, steps, data.draw(st.integers(0, steps - 1)), nic=nic)
    found = ends(ring.operation())
    assert {nic} <= set.intersection(*(set(end.ranks) for end in found if end is not None))
    assert {end and end.kind for end in found} <= {"nic", "link"}


def test_a_ring_that_went_round_leaves_nothing_to_follow() -> None:
    assert ends(Ring(4, 10, 99).operation()) == set()


@pytest.mark.parametrize(
    ("other", "end"),
    [
        (None, End("absent", (1,))),
        ("over", End("link", (0, 1))),
        ("recv_wire", End("link", (0, 1))),
        ("recv_flush", End("kernel", (1,))),
        ("recv_gpu", End("kernel", (1,))),
    ],
)
def test_who_has_no_credit_waits_for_what_the_receiver_waits_for(
    other: str | None, end: End
) -> None:
    operation = Operation({}, frozenset({0, 1}))
    sender = Transfer(0, 1, 0, True, "send_peer")
    operation.add(sender, False)
    if other is not None:
        operation.add(Transfer(1, 0, 0, False, other), other == "over")
    assert operation.end_of(sender) == end


def test_a_silent_receiver_is_not_taken_for_one_that_has_not_begun() -> None:
    operation = Operation({}, frozenset({0}))
    sender = Transfer(0, 1, 0, True, "send_peer")
    operation.add(sender, False)
    assert operation.end_of(sender) == End("silent", (1,))


def test_ranks_of_one_host_pass_data_without_transfers() -> None:
    """0 and 1 share a host, 2 and 3 another. 1 waits for data that 0 did get from 3."""
    operation = Operation({0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}, frozenset(range(4)))
    out = Transfer(1, 2, 0, True, "send_gpu", 5)
    operation.add(out, False)
    operation.add(Transfer(2, 1, 0, False, "recv_wire", 5), False)
    operation.add(Transfer(3, 0, 0, True, "send_gpu", 7), False)
    operation.add(Transfer(0, 3, 0, False, "recv_wire", 7), False)
    assert ends(operation) == {End("gpu", (0, 1))}


def rows(incident: Incident, **columns: Any) -> None:
    common = {"job": "j", "comm": 1, "kind": "coll", "seq": 8, "channel": 0, "since_ns": 10}
    incident.append("transfers", common | {"observed_ns": 110} | columns)


def test_the_newest_row_of_a_transfer_counts() -> None:
    """In flight at two seals, then over; another still in flight at both."""
    with Incident.empty() as incident:
        rank = {"rank": [0, 1], "peer": [1, 0], "direction": ["send", "recv"]}
        rows(incident, **rank, observed_ns=50, steps_done=1)
        rows(incident, **rank, observed_ns=110, steps_done=2, waits_for="recv_wire")
        rows(incident, rank=[0], peer=1, direction="send", ended_ns=60, observed_ns=None)
        found = incident.con.execute(
            f"SELECT rank, sends, steps_done, waited_ns, ended FROM ({IN_FLIGHT}) ORDER BY 1"
        ).fetchall()
    assert found == [(0, True, 0, None, True), (1, False, 2, 100, False)]


def test_only_operations_where_a_hang_begins_are_followed() -> None:
    with Incident.empty() as incident:
        calls = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "observed_ns": 110}
        incident.append("ops", calls | {"seq": 8, "rank": [0, 1], "enqueued_ns": 5})
        rows(incident, rank=[1], peer=0, direction="recv", waits_for="recv_wire")
        rows(incident, rank=[1], peer=0, direction="recv", waits_for="recv_wire", seq=7)
        rows(incident, rank=[0], peer=1, direction="send", seq=3, ended_ns=20)
        incident.require(["transfer_ends"])
        found = incident.con.execute(
            "SELECT seq, rank, waited_ns, end_kind, end_ranks FROM transfer_ends"
        ).fetchall()
    assert found == [(8, 1, 100, "absent", [0])]


def test_a_gpu_that_is_still_in_another_operation_is_no_end() -> None:
    """Rank 2 enters neither communicator 1 nor 2. Rank 1 is stuck in 2, and has called 1 behind."""
    call = {"job": "j", "kind": "coll", "op": "AllReduce", "enqueued_ns": 5}
    flying = call | {"done": False, "observed_ns": 110}
    over = call | {"started_ns": 1, "ended_ns": 2, "done": True}
    with Incident.empty() as incident:
        incident.append(
            "ops", flying | {"comm": [2, 1], "seq": [4, 8], "rank": 1, "started_ns": [6, None]}
        )
        incident.append("ops", flying | {"comm": [1], "seq": 8, "rank": 0, "started_ns": 5})
        incident.append("ops", over | {"comm": [2, 1], "seq": [3, 7], "rank": 2})
        ring = {"rank": [0, 0, 1], "peer": [1, 2, 0], "direction": ["recv", "send", "send"]}
        rows(incident, **ring, waits_for=["recv_wire", "send_peer", "send_gpu"])
        rows(incident, rank=[2], peer=0, direction="recv", seq=7, ended_ns=2)
        incident.require(["transfer_ends"])
        found = incident.con.execute(
            "SELECT rank, peer, end_kind, end_ranks FROM transfer_ends WHERE comm = 1"
        ).fetchall()
    assert found == [(0, 2, "absent", [2])]
