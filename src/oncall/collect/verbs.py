"""Source `verbs`: what training processes on this node post to their RDMA NICs.

The preloaded shim only stamps and counts (hooks/oncall_verbs.h). Here its records become windows
of requests (VenusTrace 3.2.2) and bytes an epoch (Pulse 4). Epochs of the last minute are kept in
memory; they are stored around a trigger only: a queue pair that stands still, or stays full.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oncall.collect.empty_probe import EmptyProbes
from oncall.collect.source import Collected, Instant
from oncall.collect.verbs_file import VerbsReader
from oncall.collect.verbs_process import Limits, Stuck, VerbsProcess
from oncall.errors import BadInput
from oncall.shards.batch import Batch
from oncall.units import NS_PER_S

_LOOK_EVERY_NS = NS_PER_S  # for new files, and for processes that are gone
_MOST_REQUESTS = 1 << 17  # of one file at a time


class VerbsSource:
    """Opens verbs files as they appear, drains them, lets go of those of processes long gone."""

    name = "verbs"

    def __init__(
        self,
        folder: Path,
        node: str,
        every_ns: int,
        limits: Limits,
        grace_ns: int,
        probes: EmptyProbes | None = None,
    ) -> None:
        self.every_ns = every_ns
        self._folder = folder
        self._node = node
        self._limits = limits
        self._grace_ns = grace_ns
        self._probes = probes
        self._processes: dict[Path, VerbsProcess] = {}
        self._refused: dict[Path, tuple[int, str]] = {}  # path -> (inode, why)
        self._waiting: list[tuple[VerbsProcess, Stuck]] = []  # for what its probe will tell
        self._lost = 0  # of processes that are no longer here
        self._look_at_ns = 0

    def collect(self, now: Instant) -> Collected:
        """Drain every file once."""
        if now.monotonic_ns >= self._look_at_ns:
            self._look_at_ns = now.monotonic_ns + _LOOK_EVERY_NS
            self._look(now)
        batches: list[Batch] = []
        for path, process in list(self._processes.items()):
            try:
                told, stuck = process.collect(now, _MOST_REQUESTS)
            except (BadInput, OSError) as error:
                self._refuse(path, error)
                continue
            batches += told
            self._meet(told)
            self._waiting += [(process, each) for each in stuck]
            for each in stuck:
                self._probe(each)
        batches += self._probed()
        lost = self._lost + sum(process.lost for process in self._processes.values())
        problems = tuple(why for _, why in self._refused.values())
        return Collected(batches, lost, problems, notes=self._notes())

    def standing(self, now: Instant) -> Sequence[Batch]:
        """Every queue pair there is, and those that stand still."""
        batches: list[Batch] = []
        for path, process in list(self._processes.items()):
            try:
                batches += process.standing(now)
            except (BadInput, OSError) as error:
                self._refuse(path, error)
        return batches

    def close(self) -> None:
        for process in self._processes.values():
            process.reader.close()
        self._processes.clear()
        if self._probes:
            self._probes.close()

    # ------------------------------------------------------------ empty probes

    def _meet(self, told: Sequence[Batch]) -> None:
        """Find out how peers are reached while the way to them is sound."""
        for batch in told if self._probes else ():
            if batch.table == "qps" and self._probes:
                for nic, gid in zip(batch.columns["nic"], batch.columns["peer_gid"], strict=True):
                    if gid:
                        self._probes.meet(nic, gid)

    def _probe(self, stuck: Stuck) -> None:
        if self._probes and stuck.peer_gid:
            self._probes.send(stuck.nic, stuck.peer_gid)

    def _probed(self) -> list[Batch]:
        """Rows of stuck queue pairs whose probes are over, or which have none."""
        over, waiting = [], []
        for process, stuck in self._waiting:
            known = self._probes and stuck.peer_gid
            if known and self._probes and self._probes.is_under_way(stuck.nic, stuck.peer_gid):
                waiting.append((process, stuck))
            else:
                told = self._probes.told(stuck.nic, stuck.peer_gid) if self._probes else None
                over.append(process.stuck_batch([(stuck, told)]))
        self._waiting = waiting
        return over

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if not self._processes:
            notes.append("no process here has the verbs shim: oncall hooks env --verbs")
        if self._processes and self._probes and self._probes.without:
            notes.append(f"no empty probes: {self._probes.without}")
        return tuple(notes)

    # --------------------------------------------------------------- discovery

    def _look(self, now: Instant) -> None:
        """Open what is new, and let go of processes that are gone for long."""
        paths: list[Path] = []
        with suppress(OSError):  # source `rings` says why
            paths = sorted(path for path in self._folder.iterdir() if path.suffix == ".verbs")
        self._refused = {path: why for path, why in self._refused.items() if path in paths}
        for path in paths:
            is_new = path not in self._refused or self._refused[path][0] != _inode(path)
            if path not in self._processes and is_new:
                try:
                    reader = VerbsReader.open(path)
                    self._processes[path] = VerbsProcess(reader, self._node, self._limits)
                except (BadInput, OSError) as error:
                    self._refuse(path, error)
        for path, process in list(self._processes.items()):
            self._check_life(path, process, now)

    def _check_life(self, path: Path, process: VerbsProcess, now: Instant) -> None:
        reader = process.reader
        try:
            if process.gone_since is None:
                if reader.closed or not reader.alive:
                    process.gone_since = now
                return
            gone_ns = now.monotonic_ns - process.gone_since.monotonic_ns
            is_over = gone_ns >= self._grace_ns and reader.head == reader.tail
        except (BadInput, OSError) as error:
            self._refuse(path, error)
            return
        if is_over:
            self._let_go(path)
            with suppress(OSError):
                path.unlink()

    def _refuse(self, path: Path, error: Exception) -> None:
        """Leave a file alone from now on, and say why as long as it is there."""
        self._let_go(path)
        self._refused[path] = (_inode(path), str(error))

    def _let_go(self, path: Path) -> None:
        process = self._processes.pop(path, None)
        if process:
            with suppress(BadInput, OSError):
                self._lost += process.lost
            process.reader.close()


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0
