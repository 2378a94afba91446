"""The cluster on this machine: a real collector per simulated node, a real process per rank."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from oncall.core.errors import OncallError
from oncall.demo.faults import Fault
from oncall.demo.layout import Layout, rank_environment
from oncall.demo.processes import Process, Processes
from oncall.native import hooks_library, standin_folder
from oncall.node.store.places import socket_path

_STARTS_WITHIN_S = 30.0
_SEALS_WITHIN_S = 10.0
_LOOKS_EVERY_S = 0.05
# Few operations and long computations: eight ranks leave two cores half idle, so that only the
# injected fault makes ranks slow.
_WORK = ("--layers", "1", "--compute-us", "8000")
# Rings only: all nodes are this machine, so its GPUs, NICs and load would be recorded for each.
_COLLECT = 'sources = ["rings"]\n'
_STEP = re.compile(r"^step (\d+)", re.MULTILINE)
ONCALL = (sys.executable, "-m", "oncall.cli.main")


class DemoFailed(OncallError):
    """The demonstration itself failed; the message names the process and quotes its output."""


class Cluster:
    """Starts collectors and ranks on this machine, injects a fault, and watches the job."""

    def __init__(self, folder: Path, layout: Layout, processes: Processes) -> None:
        """`folder` takes the fault's order; `processes` owns what is started. Raises NotBuilt."""
        self.layout = layout
        self._processes = processes
        self._hooks = hooks_library()
        self._standin = standin_folder()
        self._order = folder / "fault"
        self._rendezvous = folder / "rendezvous"
        self._ranks: dict[int, Process] = {}
        self._collectors: list[Process] = []
        self._struck: list[Process] = []
        self._injected: list[Fault] = []

    def start_collectors(self) -> None:
        """A collector on every node, each answering. Raises DemoFailed."""
        for node in self.layout.nodes:
            node.run.mkdir(parents=True, exist_ok=True)
            config = node.run / "collect.toml"
            config.write_text(_COLLECT, encoding="utf-8")
            collector = self._processes.start(
                f"collector of {node.name}",
                (*ONCALL, "collect", "--config", str(config)),
                os.environ | node.environment(),
            )
            self._collectors.append(collector)
        self.wait_until(
            lambda: all(socket_path(node.run).exists() for node in self.layout.nodes),
            _STARTS_WITHIN_S,
            "the collectors did not start",
        )

    def start_ranks(self) -> None:
        """The training job, hooked as a launcher would hook it."""
        for node, rank, local in self.layout.placed():
            self._ranks[rank] = self._processes.start(
                f"rank {rank}",
                self._command(),
                os.environ | rank_environment(self.layout, node, rank, local) | self._hooked(),
            )

    def _command(self) -> tuple[str, ...]:
        sizes = self.layout.sizes
        shape = [word for name in ("tp", "pp", "dp") for word in (f"--{name}", str(sizes[name]))]
        return (
            str(self._standin / "train"),
            *("--unique-id-file", str(self._rendezvous)),
            *shape,
            *("--micro-batches", str(sizes["micro_batches"])),
            *_WORK,
        )

    def _hooked(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(self._hooks),
            "NCCL_PROFILER_PLUGIN": str(self._hooks),
            "LD_LIBRARY_PATH": str(self._standin),
            "STANDIN_FAULT_FILE": str(self._order),
        }

    def steps(self) -> int:
        """Training steps done so far, as rank 0's log tells."""
        found = _STEP.findall(self._ranks[0].log.read_text(errors="replace"))
        return int(found[-1]) if found else 0

    def wait_for_steps(self, more: int, within_s: float) -> float:
        """Wait for so many more steps; their mean length in seconds. Raises DemoFailed."""
        before, began = self.steps(), time.monotonic()
        self.wait_until(
            lambda: self.steps() >= before + more, within_s, f"the job did not do {more} steps"
        )
        return (time.monotonic() - began) / max(1, self.steps() - before)

    def wait_for_standstill(self, still_s: float, within_s: float) -> None:
        """Wait until no step was done for `still_s`. Raises DemoFailed if it goes on and on."""
        last, since = self.steps(), time.monotonic()

        def still() -> bool:
            nonlocal last, since
            if self.steps() != last:
                last, since = self.steps(), time.monotonic()
            return time.monotonic() - since >= still_s

        self.wait_until(still, within_s, "the job goes on")

    def inject(self, fault: Fault) -> None:
        """Break it, now."""
        self._injected.append(fault)
        if fault.signal is not None:
            assert fault.ranks
            process = self._ranks[fault.broken]
            self._struck.append(process)
            os.kill(process.child.pid, fault.signal)
        if fault.orders:
            self._give_order(fault.order())

    def mend(self) -> None:
        """Undo what was injected: a stopped rank continues, a slow one is as fast as before; what
        cannot be undone ends with the job, which starts again. Raises OSError."""
        injected, self._injected = self._injected, []
        self._give_order("")
        if any(fault.hangs and fault.signal is not signal.SIGSTOP for fault in injected):
            self._processes.stop(list(self._ranks.values()))
            self._rendezvous.unlink(missing_ok=True)
            self.start_ranks()
            return
        for fault in injected:
            if fault.signal is not None:
                os.kill(self._ranks[fault.broken].child.pid, signal.SIGCONT)

    def _give_order(self, order: str) -> None:
        """Renamed into place: no rank reads half an order."""
        draft = self._order.with_suffix(".new")
        draft.write_text(order)
        draft.rename(self._order)

    def wait_until(self, done: Callable[[], bool], within_s: float, otherwise: str) -> None:
        """Wait for it. Raises DemoFailed when it takes longer, or a process ends by itself."""
        deadline = time.monotonic() + within_s
        while not done():
            self._see_all_alive()
            if time.monotonic() > deadline:
                raise DemoFailed(f"{otherwise} within {within_s:g} s")
            time.sleep(_LOOKS_EVERY_S)

    def _see_all_alive(self) -> None:
        for process in self._processes.ended():
            if process in self._struck:
                continue
            raise DemoFailed(
                f"the {process.name} ended (status {process.child.returncode}):\n"
                f"{process.last_words()}"
            )

    def seal(self) -> None:
        """Make the collectors seal their shards and exit while the job still runs or hangs."""
        self._processes.stop(self._collectors, patience_s=_SEALS_WITHIN_S)
