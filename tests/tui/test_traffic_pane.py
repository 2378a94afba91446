"""Traffic below a communicator's rounds, key by key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from oncall.console.evidence_queries import GetCommunicator, GetTraffic
from oncall.views.ranks.communicators import CommunicatorView
from oncall.views.traffic.operations import TrafficView
from oncall.views.traffic.rate_curves import Operation, OperationTraffic, Sender, TrafficMap

from .console import Running, console, piloted
from .fake_session import FakeSession
from .pictures import check_picture
from .snapshots import DP, LAST_NS
from .until import until

EPOCH_NS = 32_000


def sender(rank: int) -> Sender:
    """A rank of a ring whose rank 5 sends at half the rate, all the time; others wait for it."""
    slots = np.arange(60, dtype=np.int64)
    slots = slots if rank == 5 else slots[slots % 4 < 2]
    sent = np.full(len(slots), 800_000 if rank == 5 else 1_600_000, dtype=np.int64)
    start_ns = LAST_NS + slots * EPOCH_NS
    span = (int(start_ns[0]), int(start_ns[-1]) + EPOCH_NS)
    active_ns = EPOCH_NS * len(slots)
    return Sender(rank, "gpu001", *span, active_ns, int(sent.sum()), False, True, start_ns, sent)


class MeasuredSession(FakeSession):
    """Its communicators' traffic was measured."""

    def communicator(self, query: GetCommunicator) -> CommunicatorView:
        return replace(super().communicator(query), has_traffic=True)

    def traffic(self, query: GetTraffic) -> TrafficView:
        operation = Operation(query.comm, "coll", query.seq or 0, "AllReduce", "dp 0-15")
        senders = tuple(sender(rank) for rank in range(16))
        last_ns = LAST_NS + 60 * EPOCH_NS
        blamed = frozenset({5})
        groups = tuple((rank,) for rank in range(16))
        sent = np.roll(np.eye(16, dtype=np.int64), 1, axis=1) * 48_000_000
        return TrafficView(
            OperationTraffic(operation, senders, EPOCH_NS, LAST_NS, last_ns, blamed),
            TrafficMap("AllReduce 14 of dp 0-15", groups, sent, blamed=blamed),
        )


def shown_text(running: Running) -> str:
    return running.text()


@piloted
async def test_curves_of_the_round_take_the_place_of_who_waits() -> None:
    session = MeasuredSession()
    async with console(session, size=(160, 48)) as running:
        await running.press("3")
        await until(running, lambda: "AllReduce 14" in shown_text(running))
        await running.press("t")
        await until(running, lambda: "per column" in shown_text(running))
        assert session.asked[-1] == GetTraffic(DP, 14)
        check_picture(running.app, "traffic-160x48-dark")
        assert "▶ rank 5  [▄▄▄▄" in shown_text(running)
        assert "  rank 6  [█ █ █ █" in shown_text(running)
        await running.press("tab", "h")
        await until(running, lambda: session.asked[-1] == GetTraffic(DP, 13))
        await running.press("escape")
        await until(running, lambda: "per column" not in shown_text(running))


@piloted
async def test_a_narrow_terminal_shows_the_blamed_in_any_case() -> None:
    async with console(MeasuredSession(), size=(80, 24)) as running:
        await running.press("3", "t")
        await until(running, lambda: "per column" in shown_text(running))
        assert "▶ rank 5 " in shown_text(running)
