"""The addresses that a process's data comes from: those that its waiting queue pairs lead to.

No node knows which node holds a rank. But missing data should arrive at a queue pair with
outstanding receives. The queue pair names its peer's GID, and with RoCE v2 a GID is an IP address.
There are few such addresses, and a node that is asked about a flow that is not its own notices
that.
"""

from __future__ import annotations

import ipaddress
import random
from contextlib import suppress
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.ping.empty_probe import ip_of
from oncall.node.rings.living_files import LivingFiles
from oncall.node.triggers.in_flight import process_of
from oncall.node.verbs.verbs_file import VerbsReader
from oncall.node.verbs.verbs_layout import QueuePairState
from oncall.node.verbs.verbs_process import gid_of

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
