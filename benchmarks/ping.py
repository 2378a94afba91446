"""How true and how steady pings are: stamps of the kernel beside those of the program.

    python benchmarks/ping.py [--pings 2000] [--vm RESULTS.json]

Prints Markdown. Both kinds of stamps take turns over loopback in one run, answered by a process of
its own, first on the machine as it is, then with two more processes a core that compute without
end: what a host's load adds to a measurement is its error. RESULTS.json is what the virtual machine
measured: `make test-vm ONCALL_VM_RESULTS=RESULTS.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from oncall.node.ping.ping import Ping, Pinger, Target, run_pings
from oncall.node.ping.responder import Responder, Responding
from oncall.node.ping.stamped_socket import Left, Received, Refused, StampedSocket

HERE = "127.0.0.1"
PER_SECOND = 400.0
DELAY_NS = 50_000_000  # of the virtual machine's switch


class UnstampedSocket(StampedSocket):
    """One whose kernel keeps its stamps to itself: the program's own are left."""

    def receive(self) -> Received | None:
        received = super().receive()
        if received is None:
            return None
        return replace(received, stamps=replace(received.stamps, kernel_ns=None, nic_ns=None))

    def reports(self) -> Iterator[Left | Refused]:
        return (report for report in super().reports() if isinstance(report, Refused))


def main() -> None:
    """Measure on loopback, and tell what the virtual machine measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pings", type=int, default=2000)
    parser.add_argument("--vm", type=Path)
    arguments = parser.parse_args()
    if arguments.vm is not None:
        print_machine(json.loads(arguments.vm.read_text()))
        return
    print("| machine | stamps | p10 | median | p90 | p99 | median to the kernel's, quiet |")
    print("|---|---|---|---|---|---|---|")
    with responder() as port:
        quiet = measure(port, arguments.pings)
        with busy():
            loaded = measure(port, arguments.pings)
    for name, by_clock in (("as it is", quiet), ("computing", loaded)):
        for clock, rtts in by_clock.items():
            print_row(name, clock, rtts, median(quiet["kernel"]))


def measure(port: int, count: int) -> dict[str, list[int]]:
    """Round trips in ns by whose stamps they are, both taken in turns."""
    stamped, unstamped = Pinger("lo", StampedSocket(HERE)), Pinger("lo", UnstampedSocket(HERE))
    target = Target("here", (HERE, port))
    pings = run_pings([(stamped, target), (unstamped, target)], count, PER_SECOND)
    for pinger in (stamped, unstamped):
        pinger.close()
    found = {clock: rtts(pings, clock) for clock in ("kernel", "program")}
    unmeasured = Counter(ping.clock for ping in pings)
    print(f"pings by clock: {dict(unmeasured)}", file=sys.stderr)
    return found


def rtts(pings: Sequence[Ping], clock: str) -> list[int]:
    return [ping.rtt_ns for ping in pings if ping.clock == clock and ping.rtt_ns is not None]


def print_row(name: str, clock: str, values: Sequence[int], base_ns: float) -> None:
    cuts = quantiles(values, n=100)
    shown = (cuts[9], median(values), cuts[89], cuts[98])
    times = " | ".join(f"{value / 1000:.1f} µs" for value in shown)
    print(f"| {name} | {clock} | {times} | {median(values) / base_ns:.1f} × |")


def print_machine(results: dict[str, Any]) -> None:
    """The virtual machine's pings: as it is, and through a switch that delays by 50 ms."""
    print("| ping | least | median | p90 | least through 50 ms | its error |")
    print("|---|---|---|---|---|---|")
    for kind in ("network", "end_to_end"):
        plain, delayed = (
            sorted(ping["rtt_ns"] for ping in results[state][kind] if not ping["lost"])
            for state in ("plain", "delayed")
        )
        error_ns = delayed[0] - plain[0] - DELAY_NS
        shown = (plain[0], median(plain), quantiles(plain, n=10)[8], delayed[0], error_ns)
        print(f"| {kind} | " + " | ".join(f"{value / 1e6:.3g} ms" for value in shown) + " |")


@contextmanager
def responder() -> Iterator[int]:
    """A process that answers pings; its port."""
    ours, theirs = Pipe()
    process = get_context("spawn").Process(target=respond, args=(theirs,), daemon=True)
    process.start()
    yield ours.recv()
    process.terminate()
    process.join()


def respond(reported: Connection) -> None:
    stamped = StampedSocket(HERE)
    responding = Responding(Responder(stamped))
    reported.send(stamped.port)
    reported.poll(None)
    responding.close()


@contextmanager
def busy() -> Iterator[None]:
    """Twice as many processes as cores that compute."""
    with ExitStack() as stack:
        for _ in range(2 * (os.cpu_count() or 1)):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


if __name__ == "__main__":
    main()
