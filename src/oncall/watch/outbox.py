"""Announcements on their way: in order for each target, tried again until they are accepted."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from oncall.core.printable import clean
from oncall.core.units import NS_PER_S, format_duration
from oncall.watch.announcement import Announcement
from oncall.watch.keeping import Kept, Pending
from oncall.watch.targets.target import NotSent, Target

_FIRST_NS = 5 * NS_PER_S  # until the second try; twice as long each time
_LONGEST_NS = 600 * NS_PER_S
_REPEAT_NS = 60 * NS_PER_S
_PATIENCE_S = 15.0  # of the watch with a target; looks wait no longer


@dataclass
class _Delivery:
    """One send in a thread of its own; `problem` is empty once it was accepted."""

    pending: Pending
    thread: threading.Thread
    problem: str = "no answer"


class Outbox:
    """Sends what is pending. A target that hangs holds up nobody else."""

    def __init__(
        self,
        targets: Mapping[str, Target],
        save: Callable[[Kept], None],
        patience_s: float = _PATIENCE_S,
    ) -> None:
        """`save` is called after every delivery that was accepted or refused."""
        self._targets = targets
        self._save = save
        self._patience_s = patience_s
        self._hanging: dict[str, _Delivery] = {}
        self._repeated_ns: dict[str, int] = {}
        self.sent: dict[str, int] = dict.fromkeys(targets, 0)
        self.failed: dict[str, int] = dict.fromkeys(targets, 0)

    def deliver(self, kept: Kept, now_ns: int) -> Kept:
        """Send what is due, the oldest of each target; returns what is left to do."""
        kept = self._accepted_late(self._without_unknown(kept))
        while due := self._due(kept, now_ns):
            begun = [self._begin(one) for one in due]
            deadline_s = time.monotonic() + self._patience_s
            for delivery in begun:
                delivery.thread.join(max(0.0, deadline_s - time.monotonic()))
            for delivery in begun:
                kept = self._ended(kept, delivery, now_ns)
                self._save(kept)
        self._repeat(kept, now_ns)
        return kept

    def due_ns(self, kept: Kept) -> int | None:
        """When the next try is due; None if nothing is pending."""
        firsts = {one.target: one.next_ns for one in reversed(kept.pending)}
        return min(firsts.values(), default=None)

    def _due(self, kept: Kept, now_ns: int) -> list[Pending]:
        firsts = {one.target: one for one in reversed(kept.pending)}
        return [
            one for one in firsts.values() if one.next_ns <= now_ns and not self._hangs(one.target)
        ]

    def _hangs(self, target: str) -> bool:
        """Whether its last delivery has not come back yet."""
        return target in self._hanging and self._hanging[target].thread.is_alive()

    def _begin(self, pending: Pending) -> _Delivery:
        target = self._targets[pending.target]

        def send() -> None:
            try:
                target.send(pending.announcement)
            except NotSent as error:
                delivery.problem = str(error)
            except Exception as error:
                # A library may raise anything; its message may hold the URL.
                delivery.problem = type(error).__name__
            else:
                delivery.problem = ""

        thread = threading.Thread(target=send, name=f"notify-{pending.target}", daemon=True)
        delivery = _Delivery(pending, thread)
        self._hanging[pending.target] = delivery
        thread.start()
        return delivery

    def _ended(self, kept: Kept, delivery: _Delivery, now_ns: int) -> Kept:
        one = delivery.pending
        rest = tuple(each for each in kept.pending if each is not one)
        if delivery.thread.is_alive():
            problem = f"no answer within {self._patience_s:g} s"
        else:
            problem = delivery.problem
        if not problem:
            self.sent[one.target] += 1
            return replace(kept, pending=rest)
        self.failed[one.target] += 1
        wait_ns = min(_LONGEST_NS, _FIRST_NS << min(one.tries, 10))
        again = replace(one, tries=one.tries + 1, next_ns=now_ns + wait_ns)
        print(
            f"oncall: {one.target}: {clean(problem)}; trying again in {format_duration(wait_ns)}",
            file=sys.stderr,
        )
        # It stays the first of its target.
        return replace(kept, pending=(again, *rest))

    def _without_unknown(self, kept: Kept) -> Kept:
        """Targets may have been removed from the configuration since."""
        known = tuple(one for one in kept.pending if one.target in self._targets)
        return replace(kept, pending=known)

    def _accepted_late(self, kept: Kept) -> Kept:
        """What a target that hung has accepted after all is not sent once more."""
        done = [
            (one.pending.target, one.pending.announcement.id)
            for one in self._hanging.values()
            if not one.thread.is_alive() and not one.problem
        ]
        left = tuple(one for one in kept.pending if (one.target, one.announcement.id) not in done)
        if left == kept.pending:
            return kept
        kept = replace(kept, pending=left)
        self._save(kept)
        return kept

    def _repeat(self, kept: Kept, now_ns: int) -> None:
        """Remind those that forget of the open incident; a failure shows at the next one."""
        if kept.last is None or kept.last.kind == "test":
            return
        waiting = {one.target for one in kept.pending}
        for name, target in self._targets.items():
            since_ns = now_ns - self._repeated_ns.get(name, kept.last.at_ns)
            if not target.repeats or name in waiting or since_ns < _REPEAT_NS or self._hangs(name):
                continue
            self._repeated_ns[name] = now_ns
            self._begin(Pending(name, _as_of(kept.last, now_ns)))


def _as_of(announcement: Announcement, now_ns: int) -> Announcement:
    return replace(announcement, at_ns=now_ns)
