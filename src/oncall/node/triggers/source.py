"""Source `triggers`: a closer look at the network where a step is held up, and a mark that it was.

Off unless `capture` is set. It watches what ranks send and what `probes` measures; where
a round trip or a standstill is beyond what the step allows, it has raw epochs around that moment
stored, reads NICs' counters densely, pings the nodes that are pinged anyway, and says so in
`host_events`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from oncall.core.units import NS_PER_S, format_duration
from oncall.node.common.declaration import Surroundings, source
from oncall.node.common.own_thread import SeeingThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.ping.probes import ProbeOptions
from oncall.node.store.batch import Batch, of_rows
from oncall.node.traffic.recent_traffic import RecentTraffic, recent_traffic
from oncall.node.triggers.closer_look import LASTS_NS, CloserLook
from oncall.node.triggers.handing_over import HandingOver
from oncall.node.triggers.in_flight import Boards
from oncall.node.triggers.monitor import Capture, Policy
from oncall.node.triggers.node import NodeTriggers
from oncall.node.triggers.trigger_options import TriggerOptions

_MOST_WAITING = 1_000  # batches of pings that wait for the next look
_COLUMNS = ("node", "at_ns", "source", "code", "text")
_MOST_REPORTED = 16  # flows of one closer look
_OLD_NS = 10 * NS_PER_S  # of a ping: too late to look closer


class TriggerSource(Source):
    """`see` is called by the agent's thread, all else by the source's own."""

    name = "triggers"

    def __init__(
        self, options: TriggerOptions, surroundings: Surroundings, recent: RecentTraffic
    ) -> None:
        self.every_ns = options.every_ns if options.capture else NS_PER_S
        self._captures = options.capture
        self._node = surroundings.node
        self._recent = recent
        self._triggers = NodeTriggers(options.stall_ns, Policy(apart_ns=LASTS_NS))
        self._boards = Boards(surroundings.rings)
        self._handing_over = HandingOver(options, surroundings.rings)
        self._look = CloserLook(
            surroundings.node, surroundings.root, surroundings.options.of(ProbeOptions)
        )
        self._lock = threading.Lock()
        self._pings: list[Batch] = []

    # --------------------------------------------------------- the agent's thread

    @property
    def is_watching(self) -> bool:
        """Pings come as they come; nothing else is looked at."""
        return False

    def see(self, batches: Sequence[Batch]) -> None:
        """Rows on their way into the store; of pings its own, too."""
        if not self._captures:
            return
        mine = [batch for batch in batches if batch.table == "pings"]
        with self._lock:
            self._pings = [*self._pings, *mine][-_MOST_WAITING:]

    # ------------------------------------------------------------- its own thread

    def collect(self, now: Instant) -> Collected:
        """What was captured since the last call."""
        if not self._captures:
            return Collected(notes=("nothing is captured: `capture` in [triggers] is not set",))
        with self._lock:
            pings, self._pings = self._pings, []
        captures = self._seen(now)
        captures += [capture for batch in pings for capture in self._pinged(batch, now)]
        batches = [self._captured(captures, now)] if captures else []
        batches += self._look.step(now)
        limited = self._triggers.limited
        notes = (f"{limited} captures were skipped by the rate limit",) if limited else ()
        others = self._handing_over
        return Collected(batches, problems=others.problems, notes=(*notes, *others.notes))

    def close(self) -> None:
        self._boards.close()
        self._look.close()
        self._handing_over.close()

    def _seen(self, now: Instant) -> list[Capture]:
        """Look at what ranks send and wait for, with what others leave to do so."""
        seen = self._boards.read(now.monotonic_ns)
        self._handing_over.take(self._triggers, now)
        captures = self._triggers.look(seen.sending, now.monotonic_ns, seen.awaited)
        self._handing_over.give(self._triggers, seen.awaited, now)
        return captures

    def _pinged(self, batch: Batch, now: Instant) -> list[Capture]:
        columns = batch.columns
        names = ("nic", "target_node", "target_nic", "kind", "at_ns", "rtt_ns")
        found = []
        for *target, at_ns, rtt_ns in zip(*(list(columns[name]) for name in names), strict=True):
            is_new = now.realtime_ns - at_ns < _OLD_NS
            if is_new and rtt_ns is not None and rtt_ns is not np.ma.masked:
                found.append(
                    self._triggers.pinged(tuple(target), at_ns - now.offset_ns, int(rtt_ns))
                )
        return [capture for capture in found if capture is not None]

    def _captured(self, captures: Sequence[Capture], now: Instant) -> Batch:
        """Begin a closer look, and mark why."""
        since_ns = min(_since_ns(capture) for capture in captures)
        self._recent.trigger(now.realtime_ns, round(since_ns) + now.offset_ns)
        self._look.begin(now)
        rows = [
            (
                *(self._node, round(capture.at_ns) + now.offset_ns, "triggers"),
                *(f"captured_{capture.reason}", sentence(capture)),
            )
            for capture in captures[:_MOST_REPORTED]
        ]
        return of_rows("host_events", _COLUMNS, rows)


def _since_ns(capture: Capture) -> float:
    """Since when it was so; never more than a memory of epochs goes back."""
    return capture.at_ns - (capture.value_ns if capture.reason == "stall" else 0.0)


def sentence(capture: Capture) -> str:
    """Why it was captured."""
    what = {
        "rtt": "a round trip of",
        "stall": "nothing sent was acknowledged for",
        "late": "a step has taken",
    }[capture.reason]
    value, limit = (format_duration(round(ns)) for ns in (capture.value_ns, capture.limit_ns))
    return f"{what} {value}, beyond {limit}: captured"


@source("triggers", every="50 ms")
def triggers(surroundings: Surroundings, options: TriggerOptions) -> Source:
    """Pings, counters and epochs around where a step is held up."""
    recent = surroundings.shared(recent_traffic)
    return SeeingThread(TriggerSource(options, surroundings, recent))
