"""What a node's budgets give to others, and what others give to them, over the channel.

Off unless there is a secret: without one nothing listens and nothing is sent.
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.source import Instant
from oncall.node.ping.empty_probe import ip_of
from oncall.node.rings.living_files import LivingFiles
from oncall.node.triggers.channel import Channel, Notification, read_secret
from oncall.node.triggers.in_flight import Awaited, process_of
from oncall.node.triggers.node import NodeTriggers
from oncall.node.triggers.trigger_options import TriggerOptions
from oncall.node.verbs.verbs_file import QueuePairState, VerbsReader
from oncall.node.verbs.verbs_process import gid_of

# The addresses that a process's data comes from: those that its waiting queue pairs lead to.
#
# No node knows which node holds a rank. But missing data should arrive at a queue pair with
# outstanding receives. The queue pair names its peer's GID, and with RoCE v2 a GID is an IP
# address. There are few such addresses, and a node that is asked about a flow that is not its own
# notices that.

_BELIEVED_NS = NS_PER_S
MOST_ADDRESSES = 8  # of one flow: a ring has one or two, an all-to-all as many as there are nodes


class PeerAddresses:
    """Reads the verbs files of living processes; used by one thread."""

    def __init__(self, folder: Path) -> None:
        self._files = LivingFiles(folder, ".verbs", VerbsReader)
        self._chance = random.Random()
        self._addresses: dict[str, list[str]] = {}
        self._ask_again_ns = 0

    def of(self, process: str, now_ns: int) -> list[str]:
        """The addresses that owe data to a process now, or did a second ago; none if the verbs shim
        does not report it."""
        if now_ns >= self._ask_again_ns:
            self._ask_again_ns = now_ns + _BELIEVED_NS
            self._addresses.clear()
            self._files.look(now_ns)
        if process not in self._addresses:
            self._addresses[process] = self._find(process)
        return self._addresses[process]

    def _find(self, process: str) -> list[str]:
        found: set[str] = set()
        for file in self._files:
            if process_of(file.path) == process:
                with suppress(BadInput, OSError):  # source `verbs` says why
                    found |= _owing(file)
        return self._chance.sample(sorted(found), min(MOST_ADDRESSES, len(found)))

    def close(self) -> None:
        self._files.close()


def _owing(file: VerbsReader) -> set[str]:
    pairs = file.queue_pairs().rows
    waits = (pairs["state"] == QueuePairState.READY) & (pairs["receives"] > pairs["received"])
    gids = {gid for pair in pairs[waits] if (gid := gid_of(pair)) is not None}
    found = {address for gid in gids if (address := ip_of(gid)) is not None}
    # The file is the job's own: it must not make a collector speak to many.
    return {address for address in found if not ipaddress.ip_address(address).is_multicast}


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
