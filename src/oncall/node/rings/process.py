"""One training process as its ring records it: what it did since last time, and its state."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from oncall.node.common.source import Instant
from oncall.node.rings.communicators import STATES, Communicators
from oncall.node.rings.job import arguments_of, job_row
from oncall.node.rings.operations import (
    OPERATION,
    Advance,
    NewestOver,
    Tracker,
    concatenated,
    unpack,
)
from oncall.node.rings.pairs import PairNumbers
from oncall.node.rings.proxy_epochs import proxy_traffic
from oncall.node.rings.ring import RingReader
from oncall.node.rings.ring_layout import NCCL_RESULTS, OPERATIONS, CommunicatorState
from oncall.node.rings.rows import (
    InFlight,
    Operations,
    Scale,
    finished_rows,
    finished_transfers,
    open_rows,
    over_rows,
)
from oncall.node.store.batch import Batch, of_rows, one_row
from oncall.node.store.bookmarks import Bookmark
from oncall.node.traffic.recent_traffic import RecentTraffic

Array: TypeAlias = np.ndarray[Any, Any]

_KERNEL_CHANNEL = 1 << 6  # ncclProfileKernelCh: what tells that an operation has ended
_PROXY = (1 << 3) | (1 << 4)  # ncclProfileProxyOp, ncclProfileProxyStep
_DRAINED = "drained"  # the bookmark of how many records were read
_IN_FLIGHT = "in_flight"  # the bookmark of the operations that had not ended then
_OVER_BEFORE = "newest_over"  # the bookmark of the newest operations that had
_MISSED = "missed"  # the bookmark of whether records were ever lost


class Process:
    """A ring being drained, and what is known of its process so far."""

    def __init__(
        self,
        reader: RingReader,
        node: str,
        marks: Mapping[str, Bookmark],
        recent: RecentTraffic | None = None,
    ) -> None:
        """`marks`: the `bookmarks` that an earlier collector committed; empty if there was none.
        `recent`: where what proxies sent is remembered, if anywhere."""
        drained, in_flight, over, missed, counts = _distinguished(marks)
        self.reader = reader
        self.position = reader.tail  # records drained, by us or before us
        self.gone_since: Instant | None = None  # when it was first seen dead or closed
        self.end_recorded = False  # `current_state` has reported how it ended
        # What an earlier collector had drained and did not live to commit: all of it, if it left
        # no bookmark of this ring.
        self._cut_off = self.position - (drained or 0)
        self._settled: list[Batch] = []  # rows that `current_state` found, for the next `collect`
        self._forgotten = 0  # operations in flight among too many
        self.lost = self._cut_off  # records that are known to be lost, ever
        self._node = node
        self._arguments: tuple[str, ...] = ()  # of the process, once it was seen alive
        self._recent = recent
        self._pairs = PairNumbers(counts)
        self._over = NewestOver(over)
        self._tracker = Tracker(self._pairs, self._over)
        if in_flight is not None:
            self._tracker.take_over(in_flight)
        self._communicators = Communicators(reader.header.communicator_slots)
        # Who came before us has read what is not in the ring any more.
        self._missed = self.position > 0 and (missed or in_flight is None or self._cut_off > 0)
        self.bookmarks = self._marks()  # what the next collector must know of all rows so far

    @property
    def closed(self) -> bool:
        """The process ended in order."""
        return self.reader.closed

    def _marks(self) -> dict[str, Bookmark]:
        """By the ring's name and its own."""
        marks: dict[str, Bookmark] = {
            _DRAINED: self.position,
            _IN_FLIGHT: self._tracker.packed,
            _OVER_BEFORE: self._over.packed,
            _MISSED: int(self._missed),
            **self._pairs.bookmarks,
        }
        ring = self.reader.path.name
        return {f"{ring}/{name}": mark for name, mark in marks.items()}

    def collect(self, now: Instant, most: int, over: list[Operations]) -> list[Batch]:
        """Rows of what happened since the last call, from at most `most` records. Operations that
        are over are added to `over`: their rows are made of all processes' together."""
        records = self.reader.drain(most)
        self._count_losses()
        self._see_boards()
        batches, self._settled = self._settled, []
        if len(records):
            self.position = self.reader.tail
            numbers = self._communicators.numbers(records["communicator"], records["time_ns"])
            recorded = self._communicators.record_ends(numbers)
            batches += self._rows_of(self._tracker.advance(records, numbers, recorded), now, over)
        self.bookmarks = self._marks()
        return batches

    def current_state(self, now: Instant, in_flight: InFlight) -> list[Batch]:
        """Who the process is, and its communicators; what it has in flight is added to `in_flight`.
        What it finds to be over comes with the next `collect`, once."""
        self._see_boards()
        self.end_recorded = self.gone_since is not None
        scale = self._scale(now)
        if scale is None:
            return []
        # What a dead process had in flight waits no longer than it lived.
        observed_ns = (self.gone_since or now).monotonic_ns + scale.offset_ns
        self._settled += self._reconcile(scale, observed_ns)
        boards = self.reader.transfers().rows
        table = self._tracker.in_flight if not self.closed else np.zeros(0, OPERATION)
        if len(boards):
            of = self._operations_of(boards, table)
            add_steps(table, boards)
            in_flight.transfers.append((boards, self._known(of, scale), observed_ns))
        if len(table):
            in_flight.operations.append((self._known(table, scale), observed_ns))
        return [*self._who(scale), *self._memberships(scale, now)]

    def present(self, now: Instant) -> list[Batch]:
        """The same for a watcher, at no cost and without marking anything as reported: ranks,
        communicators and operations in flight."""
        scale = self._scale(now)
        if scale is None:
            return []
        is_over = self.closed or self.gone_since is not None
        in_flight = np.zeros(0, OPERATION) if is_over else self._tracker.in_flight
        observed_ns = now.monotonic_ns + scale.offset_ns
        return [
            *self._who(scale),
            *self._memberships(scale, now),
            open_rows(self._known(in_flight, scale), observed_ns),
        ]

    def _count_losses(self) -> None:
        """Losses that the ring counts, and our own. With one, boards must help out."""
        lost = self._cut_off + self._forgotten + self.reader.lost
        self._missed |= lost > self.lost
        self.lost = lost

    # ------------------------------------------------------------------- rows

    def _known(self, operations: Array, scale: Scale) -> Operations:
        members = self._communicators.members(operations["communicator"])
        return Operations(operations, members, scale.job, scale.rank, scale.offset_ns)

    def _rows_of(self, advance: Advance, now: Instant, over: list[Operations]) -> list[Batch]:
        self._forgotten += advance.forgotten
        scale = self._scale(now)
        if scale is None:
            return []
        batches = []
        if len(advance.finished):
            over.append(self._known(advance.finished, scale))
        if len(advance.failed):
            batches.append(over_rows(self._known(advance.failed, scale)))
            batches.append(self._failures(advance.failed, scale))
        if len(advance.transfers):
            self._communicators.saw_steps(advance.transfers_of["communicator"])
            of = self._known(advance.transfers_of, scale)
            batches.append(finished_transfers(advance.transfers, of))
            self._remember(advance.transfers, of, scale, now)
        return batches

    def _remember(self, transfers: Array, of: Operations, scale: Scale, now: Instant) -> None:
        """Keep what the proxy sent in these (TRANSFER_OVER), if nothing nearer measures that."""
        sent = (transfers["is_send"] != 0) & (transfers["bytes"] > 0) & (of.table["operation"] != 0)
        if self._recent is None or not self._recent.wants_proxies(now.realtime_ns):
            return
        comms = of.members["identity"]
        sent &= comms != 0
        flows, epochs = proxy_traffic(transfers[sent], comms[sent], scale, self._node)
        self._recent.add(flows, epochs, now.realtime_ns)

    def _failures(self, failed: Array, scale: Scale) -> Batch:
        """Calls that NCCL refused, in its own words."""
        columns = ("node", "at_ns", "source", "code", "text")
        rows = []
        for operation in failed:
            code = NCCL_RESULTS.get(int(operation["result"]), f"result {operation['result']}")
            name = OPERATIONS[operation["op"]] if operation["op"] < len(OPERATIONS) else "operation"
            at_ns = int(operation["entered_ns"]) + scale.offset_ns
            text = f"rank {scale.rank}: {name} {operation['sequence']} returned {code}"
            rows.append((self._node, at_ns, "nccl", code, text))
        return of_rows("host_events", columns, rows)

    def _who(self, scale: Scale) -> Iterable[Batch]:
        header = self.reader.header
        pid = self.reader.pid_here
        if pid and not self._arguments:
            self._arguments = arguments_of(pid)
        yield job_row(
            scale.job,
            header.world_size,
            header.configuration,
            header.framework,
            self._arguments,
        )
        yield one_row(
            "ranks",
            job=scale.job,
            rank=scale.rank,
            node=self._node,
            local_rank=header.local_rank,
            gpu=header.gpu,
            pci_bus=header.pci_bus or None,
            pid=header.pid,
            nic=header.nic or None,
            started_ns=header.process_started_ns,
        )

    def _memberships(self, scale: Scale, now: Instant) -> Iterable[Batch]:
        boards = self._communicators.boards
        boards = boards[boards["identity"] != 0]
        if not len(boards):
            return
        names = [_text(name) or None for name in boards["name"]]
        yield Batch(
            "comms",
            len(boards),
            {
                "job": scale.job,
                "comm": boards["identity"],
                "rank": scale.rank,
                "comm_rank": np.ma.MaskedArray(boards["rank"], mask=boards["rank"] < 0),
                "size": np.ma.MaskedArray(boards["size"], mask=boards["size"] <= 0),
                "name": names,
                "role": names,
            },
        )
        recorded = self._communicators.members(boards["number"].astype(np.int64))["ends_recorded"]
        progress = boards["collectives"]
        yield Batch(
            "launches",
            len(boards),
            {
                "job": scale.job,
                "comm": boards["identity"],
                "rank": scale.rank,
                "at_ns": now.realtime_ns,
                "launched": progress["entered"].astype(np.int64),
                "completed": np.ma.MaskedArray(progress["ended"].astype(np.int64), mask=~recorded),
                "state": self._states(boards),
                "source": "board",
                "pid": [self.reader.pid_here or None] * len(boards),
            },
        )

    def _states(self, boards: Array) -> Sequence[str]:
        """Each communicator's state in the words of `launches.state`."""
        halted = None  # what keeps it from going on with any of them
        if self.gone_since is not None and not self.closed:
            halted = "dead"
        elif self.reader.stopped:
            halted = "stopped"
        return [
            halted if halted and state not in _OVER else STATES[min(int(state), len(STATES) - 1)]
            for state in boards["state"].tolist()
        ]

    # ------------------------------------------------------------- the boards

    def _see_boards(self) -> None:
        boards = self.reader.communicators()
        ends_recorded = bool(self.reader.event_mask & (_KERNEL_CHANNEL | _PROXY))
        self._communicators.see(boards.slots, boards.rows, ends_recorded=ends_recorded)

    def _reconcile(self, scale: Scale, observed_ns: int) -> list[Batch]:
        """Make the table of operations in flight agree with the boards; returns rows of what is
        in it no more, though no record states its end.

        Counters decide only after a loss: they and the records are not read in one moment, and
        without a loss the records are more precise.
        """
        table = self._tracker.in_flight
        if not len(table) and not self._missed:
            return []
        states = self._communicators.members(table["communicator"])["state"]
        lost = np.isin(states, (CommunicatorState.ABORTED, CommunicatorState.FAILED))
        abandoned = self._tracker.retire(table["operation"][lost])
        over = [self._tracker.retire(table["operation"][states == CommunicatorState.DESTROYED])]
        is_drained = self.reader.head == self.reader.tail
        if self._missed and is_drained:
            self._tracker.add_last(self._open_by_boards())
            over.append(self._tracker.retire(self._surplus()))
        left = self._tracker.in_flight["operation"] if self.closed and is_drained else ()
        # What was aborted stays as it then stood, as a watchdog's abort is how most hangs end;
        # it counts until its rank goes on with something else.
        batches = []
        if len(abandoned):
            given_up = self._known(abandoned, scale)
            closed_ns = given_up.members["closed_ns"]
            until_ns = np.where(closed_ns > 0, closed_ns + scale.offset_ns, observed_ns)
            batches.append(open_rows(given_up, until_ns))
        if len(seen_over := concatenated(over)):
            batches.append(finished_rows(self._known(seen_over, scale)))
        if len(left):
            retired = self._tracker.retire(np.array(left, np.uint64))
            batches.append(over_rows(self._known(retired, scale)))
        return batches

    def _open_by_boards(self) -> Array:
        """The last operation entered on each communicator, where some is open and it is unknown."""
        known = set(self._tracker.in_flight["operation"].tolist())
        found = []
        for board in self._communicators.boards:
            for name, point_to_point in (("collectives", False), ("point_to_point", True)):
                last = board[name]
                is_open = last["entered"] > last["ended"] and last["operation"] != 0
                if is_open and int(last["operation"]) not in known:
                    found.append(_from_board(board, last, point_to_point))
        return np.concatenate([np.zeros(0, OPERATION), *found])

    def _surplus(self) -> Array:
        """Numbers of operations that the table holds and the boards count as over: the oldest."""
        table = self._tracker.in_flight
        gone = [np.zeros(0, np.uint64)]
        for board in self._communicators.boards:
            for name, point_to_point in (("collectives", False), ("point_to_point", True)):
                mine = (table["communicator"] == board["number"]) & (
                    table["point_to_point"] == point_to_point
                )
                really = max(0, int(board[name]["entered"]) - int(board[name]["ended"]))
                numbers = table["operation"][mine]
                gone.append(numbers[: max(0, len(numbers) - really)])
        return np.concatenate(gone)

    def _operations_of(self, boards: Array, in_flight: Array) -> Array:
        """The operation of each transfer in flight; operation 0 where it is not known."""
        of = np.zeros(len(boards), OPERATION)
        of["communicator"] = self._communicators.numbers(
            boards["communicator"].astype(np.int64), boards["started_ns"]
        )
        at = np.searchsorted(in_flight["operation"], boards["operation"])
        inside = np.flatnonzero(at < len(in_flight))
        same = in_flight["operation"][at[inside]] == boards["operation"][inside]
        of[inside[same]] = in_flight[at[inside[same]]]
        self._communicators.saw_steps(of["communicator"])
        return of

    def _scale(self, now: Instant) -> Scale | None:
        """Job, rank and clock of this process's rows; None while its rank is not known."""
        header = self.reader.header
        rank = header.rank
        if rank is None:
            # A program that no launcher numbered: its place in its first communicator.
            boards = self._communicators.boards
            if not len(boards) or boards["rank"][0] < 0:
                return None
            rank = int(boards["rank"][0])
        return Scale(header.job or "unnamed", rank, now.offset_ns)


def _distinguished(
    marks: Mapping[str, Bookmark],
) -> tuple[int | None, Array | None, bytes, bool, dict[str, int]]:
    """How many records were drained, what was in flight then (OPERATION) and what was over
    (NewestOver), whether records were ever lost, and counts of pairs."""
    counts = {name: mark for name, mark in marks.items() if isinstance(mark, int)}
    drained, missed = counts.pop(_DRAINED, None), counts.pop(_MISSED, 0)
    packed, over = marks.get(_IN_FLIGHT), marks.get(_OVER_BEFORE)
    in_flight = unpack(packed) if isinstance(packed, bytes) else None
    return drained, in_flight, over if isinstance(over, bytes) else b"", missed != 0, counts


_OVER = (CommunicatorState.DESTROYED, CommunicatorState.ABORTED, CommunicatorState.FAILED)


def add_steps(in_flight: Array, boards: Array) -> None:
    """Add the steps of transfers in flight to the operations (sorted by number), in place."""
    at = np.searchsorted(in_flight["operation"], boards["operation"])
    inside = np.flatnonzero(at < len(in_flight))
    inside = inside[in_flight["operation"][at[inside]] == boards["operation"][inside]]
    is_send = boards["is_send"][inside] != 0
    done = boards["steps_done"][inside].astype(np.int64)
    np.add.at(in_flight["sends"], at[inside][is_send], done[is_send])
    np.add.at(in_flight["recvs"], at[inside][~is_send], done[~is_send])


def _from_board(board: Any, last: Any, point_to_point: bool) -> Array:
    """An operation as its communicator's board shows it (one row of OPERATION)."""
    row = np.zeros(1, OPERATION)
    row["communicator"] = board["number"]
    row["sequence"] = last["entered"]
    row["point_to_point"] = point_to_point
    row["entered_ns"] = last["entered_ns"]
    for name in ("operation", "op", "dtype", "count", "peer"):
        row[name] = last[name]
    return row


def _text(name: bytes) -> str:
    return bytes(name).split(b"\0", 1)[0].decode("utf-8", "replace")
