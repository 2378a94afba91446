"""Reports as a tracing system collects them: where and when a sender noticed that it is late.

A sender whose step takes longer than it should asks a few times (Vedrfolnir III-C); the switches
along its way then report the ports it passes, and where one of them is paused, the question goes on
to the switch that pauses it. A report holds the epoch that runs and the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import numpy as np

from oncall_lab.arrays import Bools
from oncall_lab.network.play import Played

Ask: TypeAlias = tuple[int, float]  # a flow of the collective, and when in ns
TOLERATED = 1.1  # of what a step should take at most, when it is first asked for
EPOCHS = 2


def asked(played: Played) -> Bools:
    """(epochs, ports): who reported what."""
    return reported(played, _late(played))


def _late(played: Played) -> Iterator[Ask]:
    """When senders whose step takes too long ask."""
    plan, progress = played.plan, played.progress
    alone = plan.messages.bytes / played.scenario.network_bytes_per_s * 1e9
    for message in np.flatnonzero(~np.isnan(progress.started_ns)).tolist():
        ended_ns = progress.ended_ns[message]
        ended_ns = played.until_ns if np.isnan(ended_ns) else ended_ns
        took = ended_ns - progress.started_ns[message]
        if took <= TOLERATED * alone[message]:
            continue
        # A packet's round trip tells at once that it waits; the step's end is not waited for.
        for ask_ns in progress.started_ns[message] + took * np.linspace(
            0.2, 1.0, played.scenario.asks
        ):
            yield int(plan.messages.flow[message]), float(ask_ns)


def reported(played: Played, asks: Iterable[Ask]) -> Bools:
    """(epochs, ports): what switches report when these flows of the collective ask."""
    tree = played.plan.tree
    reported = np.zeros((len(played.counts), len(tree.device_of)), np.bool_)
    epoch_ns = played.epoch_ns
    stopped = _stopped(played, epoch_ns)
    for flow, ask_ns in asks:
        now = min(int(ask_ns // epoch_ns), len(reported) - 1)
        epochs = slice(max(0, now - EPOCHS + 1), now + 1)
        path = played.plan.routes[flow]
        ports = _reached(played, path, np.logical_or.reduce(stopped[epochs]), epochs)
        reported[epochs, ports] = True
    reported[:, [tree.is_host(device) for device in tree.device_of.tolist()]] = False
    return reported


def _stopped(played: Played, epoch_ns: float) -> Bools:
    """(epochs, ports): paused at some time of the epoch."""
    epochs, ports = len(played.counts), len(played.plan.tree.device_of)
    stopped = np.zeros((epochs, ports), np.bool_)
    since: dict[int, int] = {}
    for at_ns, port, paused in played.pauses:
        epoch = min(int(at_ns // epoch_ns), epochs - 1)
        if paused:
            since[port] = epoch
        elif port in since:
            stopped[since.pop(port) : epoch + 1, port] = True
    for port, epoch in since.items():
        stopped[epoch:, port] = True
    return stopped


def _reached(played: Played, path: tuple[int, ...], stopped: Bools, epochs: slice) -> list[int]:
    """The ports of a way; where one is paused, those that its traffic goes on to, and so on."""
    legs = played.legs
    moving = np.flatnonzero((played.counts.arrived[epochs] > 0).any(axis=0))
    reached, front = set(path), list(path)
    while front:
        port = front.pop()
        if stopped[port]:
            onward = legs.port[moving[legs.came_by[moving] == port]].tolist()
            fresh = set(onward) - reached
            reached |= fresh
            front += fresh
    return sorted(reached)
