"""What a node's budgets give to others, and what others give to them, over the channel.

Off unless there is a secret: without one nothing listens and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.node.common.source import Instant
from oncall.node.triggers.channel import Channel, read_secret
from oncall.node.triggers.flows import Awaited
from oncall.node.triggers.node import NodeTriggers
from oncall.node.triggers.notification import Notification
from oncall.node.triggers.peer_addresses import PeerAddresses
from oncall.node.triggers.trigger_options import TriggerOptions


class HandingOver:
    """Call `take` before the node's triggers look, and `give` after."""

    def __init__(self, options: TriggerOptions, rings: Path) -> None:
        self.problems: tuple[str, ...] = ()
        self._channel: Channel | None = None
        self._knows_nobody = False
        self._addresses = PeerAddresses(rings)
        if options.capture and options.secret:
            try:
                secret = read_secret(Path(options.secret))
                self._channel = Channel(secret, options.address, options.port)
            except BadInput as error:
                self.problems = (f"detections are not handed over: {error}",)
            except OSError as error:
                place = f"{options.address or '*'}:{options.port}"
                self.problems = (
                    f"detections are not handed over at {place}: {error.strerror or error}",
                )

    @property
    def notes(self) -> tuple[str, ...]:
        """Counts of detections given, taken and refused."""
        if self._channel is None:
            return ()
        sentences = self._channel.counted.sentences()
        why = (
            "detections cannot be handed over: queue pairs name no peer (oncall hooks env --verbs)"
        )
        return (why, *sentences) if self._knows_nobody else sentences

    def take(self, triggers: NodeTriggers, now: Instant) -> None:
        """Take the detections that others gave for flows that this node sends."""
        if self._channel is None:
            return
        counted = self._channel.counted
        for notification in self._channel.received(now):
            is_ours = triggers.handed(notification.flow, notification.detections)
            counted.taken += is_ours
            counted.elsewhere += not is_ours

    def give(self, triggers: NodeTriggers, awaited: Sequence[Awaited], now: Instant) -> None:
        """Give the remaining detections to the flows that this node waits for."""
        if self._channel is None:
            return
        for to in triggers.waited_for(awaited, now.monotonic_ns):
            addresses = self._addresses.of(to.process, now.monotonic_ns)
            self._knows_nobody = not addresses
            if addresses and self._channel.may_send(now):
                notification = Notification(to.flow, triggers.leave_to(to), now.realtime_ns)
                self._channel.send(notification, addresses)

    def close(self) -> None:
        self._addresses.close()
        if self._channel is not None:
            self._channel.close()
