"""Source `verbs`: what training processes on this node post to their RDMA NICs.

The preloaded shim only stamps and counts (hooks/oncall_verbs.h). Here its records become windows
of requests (VenusTrace 3.2.2) and bytes an epoch (Pulse 4). Epochs stay in memory
(recent_traffic.py); a queue pair that is stalled, or stays full, has them stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.errors import BadInput
from oncall.core.units import NS_PER_S
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.options import option
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import read_text
from oncall.node.ping.empty_probe import EmptyProbes
from oncall.node.ping.probes import ProbeOptions
from oncall.node.rdma.rdma_nics import link_rate
from oncall.node.rings.shared_files import SharedFiles
from oncall.node.store.batch import Batch
from oncall.node.traffic.recent_traffic import RecentTraffic, recent_traffic
from oncall.node.verbs.verbs_file import VerbsReader
from oncall.node.verbs.verbs_process import Limits, Stuck, VerbsProcess

_MOST_REQUESTS = 1 << 17  # of one file at a time


@dataclass(frozen=True)
class VerbsOptions(Polled):
    """Options of source `verbs`."""

    every_ns: int = option("duration", "how often posted work requests are read")
    window: int = option("number", "work requests in a window (VenusTrace 4)", default=50)
    timeout_ns: int = option(
        "duration",
        "a request outstanding for longer is reported and probed; traffic around it is stored",
        default=NS_PER_S // 2,
    )
    all_epochs: bool = option(
        "truth",
        "whether every epoch is stored (up to 100,000 rows a second per process), not "
        "only those around stuck or late requests",
        default=False,
    )


class VerbsSource:
    """Opens verbs files as they appear, drains them, and closes those of processes that ended long
    ago."""

    name = "verbs"

    def __init__(
        self,
        folder: Path,
        node: str,
        every_ns: int,
        limits: Limits,
        grace_ns: int,
        recent: RecentTraffic,
        probes: EmptyProbes | None = None,
        root: Path = Path("/"),
    ) -> None:
        self._busy_every_ns = every_ns
        self._node = node
        self._limits = limits
        self._recent = recent
        self._probes = probes
        self._root = root
        self._processes = SharedFiles(folder, ".verbs", grace_ns, self._open)
        self._waiting: list[tuple[VerbsProcess, Stuck]] = []  # for the result of its probe

    @property
    def every_ns(self) -> int:
        """How often the files are drained; without any, how often one is looked for."""
        return self._busy_every_ns if self._processes else max(self._busy_every_ns, NS_PER_S)

    def collect(self, now: Instant) -> Collected:
        """Drain every file once."""
        self._processes.look(now)
        batches: list[Batch] = []
        for path, process in self._processes:
            try:
                collected, stuck = process.collect(now, _MOST_REQUESTS)
            except (BadInput, OSError) as error:
                self._processes.refuse(path, error)
                continue
            batches += collected
            self._meet(collected)
            self._waiting += [(process, each) for each in stuck]
            for each in stuck:
                self._probe(each)
        batches += self._probed()
        lost, problems = self._processes.lost, self._processes.problems
        return Collected(batches, lost, problems, notes=self._notes())

    def current_state(self, now: Instant) -> Sequence[Batch]:
        """Every queue pair there is, and those that are stalled."""
        return self._processes.said(lambda process: process.current_state(now))

    def close(self) -> None:
        self._processes.close()
        if self._probes:
            self._probes.close()

    def _open(self, path: Path) -> VerbsProcess:
        reader = VerbsReader.open(path)
        return VerbsProcess(reader, self._node, self._limits, self._recent, self._link_rate)

    def _link_rate(self, nic: str, port: int) -> int | None:
        """What the port's link carries, bytes a second, if the kernel reports it."""
        place = self._root / "sys/class/infiniband" / nic / "ports" / str(port)
        is_name = "/" not in nic and nic not in ("", ".", "..")  # it comes from a job's process
        return link_rate(read_text(place / "rate")) if is_name else None

    # ------------------------------------------------------------ empty probes

    def _meet(self, collected: Sequence[Batch]) -> None:
        """Find out how peers are reached while the path to them works."""
        for batch in collected if self._probes else ():
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
                result = self._probes.result(stuck.nic, stuck.peer_gid) if self._probes else None
                over.append(process.stuck_batch([(stuck, result)]))
        self._waiting = waiting
        return over

    def _notes(self) -> tuple[str, ...]:
        notes = []
        if not self._processes:
            notes.append("no process here has the verbs shim: oncall hooks env --verbs")
        if self._processes and self._probes and self._probes.without:
            notes.append(f"no empty probes: {self._probes.without}")
        return tuple(notes)


@source("verbs", every="100 ms")
def verbs(surroundings: Surroundings, options: VerbsOptions) -> Source:
    """What training processes post to RDMA NICs, seen by the verbs shim."""
    port = surroundings.options.of(ProbeOptions).port
    made = VerbsSource(
        surroundings.rings,
        surroundings.node,
        options.every_ns,
        Limits(options.window, options.timeout_ns, options.all_epochs),
        surroundings.ring_grace_ns,
        surroundings.shared(recent_traffic),
        EmptyProbes(port, surroundings.root),
        surroundings.root,
    )
    return OwnThread(made)
