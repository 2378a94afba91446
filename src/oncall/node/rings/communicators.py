"""The communicators of one process, from the boards in its ring. Pure.

A board's slot is used again when its communicator is gone; its `number`, from 1 within the
process, is not. Operations are kept by that number.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from oncall.node.rings.ring_layout import COMMUNICATOR

Array: TypeAlias = np.ndarray[Any, Any]

MEMBER = np.dtype(
    [
        ("identity", "u8"),  # its commHash; 0: not known
        ("state", "u4"),  # its state (CommunicatorState)
        ("closed_ns", "i8"),  # when its life ended (CLOCK_MONOTONIC); 0: not known, or not
        ("is_alone", "?"),  # it has one rank only
        ("ends_recorded", "?"),  # a profiler records the end of its operations
        ("steps_reported", "?"),  # its transfers are recorded, and so send and receive steps
    ]
)
_MOST_KEPT = 4096  # a process that makes and destroys communicators without end
# The names of `launches.state`, after NCCL RAS.
STATES = ("nocomm", "init", "running", "finalize", "nocomm", "abort", "error")


class Communicators:
    """Every communicator seen in a process, sorted by number, each as its board last stood."""

    def __init__(self, slots: int) -> None:
        self._boards: Array = np.zeros(0, COMMUNICATOR)
        self._with_steps: set[int] = set()  # numbers of those of which a transfer was seen
        self._ends_recorded = False
        self._now: Array = np.zeros(slots, np.int64)  # number by slot
        self._before: Array = np.zeros(slots, np.int64)
        self._since_ns: Array = np.zeros(slots, np.int64)  # when the one now there was made

    @property
    def boards(self) -> Array:
        """The newest board of each communicator (COMMUNICATOR), by number."""
        return self._boards

    def see(self, slots: Array, boards: Array, *, ends_recorded: bool) -> None:
        """Take in the boards in use, read after the records that are to be distinguished.

        `ends_recorded`: the profiler is asked for the events that record an operation's end.
        """
        self._ends_recorded = ends_recorded
        changed = slots[self._now[slots] != boards["number"]]
        self._before[changed] = self._now[changed]
        self._now[slots] = boards["number"]
        self._since_ns[slots] = boards["created_ns"]
        if not np.array_equal(self._boards["number"], boards["number"]):
            others = self._boards.compress(~np.isin(self._boards["number"], boards["number"]))
            boards = np.concatenate([others, boards])
            boards = boards.take(np.argsort(boards["number"], kind="stable"))[-_MOST_KEPT:]
        self._boards = boards

    def numbers(self, slots: Array, times_ns: Array) -> Array:
        """The communicator of each record (n,) by its slot and its time (CLOCK_MONOTONIC).

        A slot may have changed hands since the last look; no record of a communicator is older
        than its board. 0 where there is none.
        """
        inside = slots < len(self._now)
        slots = np.where(inside, slots, 0)
        newer = times_ns >= self._since_ns[slots]
        numbers = np.where(newer, self._now[slots], self._before[slots])
        numbers[~inside] = 0
        return numbers

    def saw_steps(self, numbers: Array) -> None:
        """Note that transfers of these communicators are recorded."""
        self._with_steps.update(np.unique(numbers).tolist())

    def record_ends(self, numbers: Array) -> Array:
        """Whether a profiler records the end of these communicators' operations, (n,)."""
        of: Array = np.isin(numbers, self._boards["number"][self._boards_record_ends()])
        return of

    def _boards_record_ends(self) -> Array:
        """Only NCCL's profiler reports the hash, and for a single rank it reports nothing."""
        boards = self._boards
        by_hash: Array = (boards["identity_is_hash"] != 0) & (boards["size"] != 1)
        return by_hash & self._ends_recorded

    def members(self, numbers: Array) -> Array:
        """What is known of these communicators (MEMBER), (n,)."""
        boards = self._boards
        known = np.zeros(len(boards) + 1, MEMBER)  # the last one: of a communicator not known
        for name in ("identity", "state", "closed_ns"):
            known[name][:-1] = boards[name]
        known["is_alone"][:-1] = boards["size"] == 1
        known["ends_recorded"][:-1] = self._boards_record_ends()
        have = np.append(boards["number"].astype(np.int64), 0)
        known["steps_reported"] = np.isin(have, list(self._with_steps))
        at = np.searchsorted(have[:-1], numbers)
        return known.take(np.where(have[at] == numbers, at, len(boards)))
