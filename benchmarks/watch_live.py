"""How soon `oncall watch` detects that a job hangs, names who, and has notified, over sshd.

    python benchmarks/watch_live.py [--faults stopped killed locked starved mismatch] [--times 1]
    python benchmarks/watch_live.py --sound-minutes 12

Prints Markdown. The demonstration's job of eight ranks runs on four nodes behind an sshd on
loopback, each with a collector of rings and processes; a real `oncall watch` with the default
settings and all rulebooks notifies a server on loopback. Each fault strikes a new job; seconds are
from the fault to the look that first shows trouble, to the one that names the rank, and to the
notification. `--sound-minutes`: no fault, but a checkpoint of rank 0, for as long as several steps,
each minute, and an idle pause of all between them: whatever arrives is false.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import oncall.demo.cluster
from oncall.demo.faults import Fault, fault_named
from oncall.demo.layout import JOB

sys.path.insert(0, str(Path(__file__).parent))

from console_live import Running, job_running
from watch import Watch, receiving, start_watch

BROKEN = 5
FAULTS = {
    "stopped": fault_named("H1-stopped"),
    "killed": fault_named("H1-died"),
    "locked": Fault("H-locked", ("H1",), (BROKEN,), "blocked in a lock", ("locked,comm=dp",)),
    "starved": Fault("H-starved", ("H1",), (BROKEN,), "blocked in a loader", ("starved,comm=dp",)),
    "mismatch": fault_named("H2"),
}
RUNS_S, NOTIFIES_S, POLL_S = 45.0, 180.0, 0.2
CHECKPOINT_S, IDLE_S = 6.0, 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", nargs="+", choices=FAULTS, default=[*FAULTS])
    parser.add_argument("--times", type=int, default=1, help="each fault, medians are printed")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--sound-minutes", type=float, default=0)
    arguments = parser.parse_args()
    oncall.demo.cluster._COLLECT = 'sources = ["rings", "host_processes"]\n'
    names = [f"gpu{number:03d}" for number in range(1, arguments.nodes + 1)]
    if arguments.sound_minutes:
        sound(names, arguments.sound_minutes)
        return
    print("| fault | detected | named | notified | what it says | a look | load |")
    print("|---|---|---|---|---|---|---|", flush=True)
    for name in arguments.faults:
        runs = [struck(names, FAULTS[name]) for _ in range(arguments.times)]
        seconds = [statistics.median(each) for each in zip(*(run[0] for run in runs), strict=True)]
        cells = [name, *(f"{each:.0f} s" for each in seconds), *runs[-1][1]]
        print(f"| {' | '.join(cells)} |", flush=True)


def watching(names: list[str], running: Running, folder: Path, bus: str) -> Watch:
    hosts = ",".join(names)
    words = ("--job", JOB, "--hosts", hosts)
    settings = (folder / "xdg" / "oncall" / "config.toml").read_text()
    return start_watch("nodes", folder, bus, words, running.cluster._processes, settings)


def struck(names: list[str], fault: Fault) -> tuple[tuple[float, ...], list[str]]:
    """Seconds to detect, to name and to notify, and what else there is to say."""
    watches: dict[str, Watch] = {}
    with (
        tempfile.TemporaryDirectory() as place,
        receiving(watches) as bus,
        job_running(Path(place), names) as running,
    ):
        watch = watches["nodes"] = watching(names, running, Path(place), bus)
        until(RUNS_S + random.uniform(0, 30), watch, running)
        running.cluster.inject(fault)
        at = time.time()
        detected = named = float("nan")
        notified = None
        while notified is None and time.time() < at + NOTIFIES_S:
            time.sleep(POLL_S)
            for sentence in suspected(watch):
                detected = (
                    min(detected, time.time() - at) if detected == detected else time.time() - at
                )
                if f"rank {fault.broken}" in sentence and named != named:
                    named = time.time() - at
            notified = watch.first("opened", at)
        watch.poll()
        after_s, headline = notified or (float("nan"), "nothing")
        named = (
            min(named, after_s) if f"rank {fault.broken}" in headline and named != named else named
        )
        print(event_of(watch), file=sys.stderr)
        for end, took_s in watch.looks.items():
            print(f"look {end - at:+.0f} s for {took_s:.1f} s", file=sys.stderr)
        print(watch.process.log.read_text(), file=sys.stderr, flush=True)
        look_s = statistics.median(watch.looks.values() or [0.0])
        more = [headline, f"{look_s:.1f} s", f"{os.getloadavg()[0]:.1f}"]
        return (detected, named, after_s), more


def until(seconds: float, watch: Watch, running: Running) -> None:
    ends = time.time() + seconds
    while time.time() < ends:
        running.cluster._see_all_alive()
        watch.poll()
        time.sleep(1)


def suspected(watch: Watch) -> list[str]:
    try:
        state = json.loads((watch.folder / "state.json").read_text())["state"]
    except (OSError, ValueError):
        return []
    return [one["sentence"] for one in state["suspected"]]


def event_of(watch: Watch) -> str:
    return watch.received[-1][1]["data"]["summary"] if watch.received else "no notification"


def sound(names: list[str], minutes: float) -> None:
    """A job with checkpoints and pauses, and how often it was notified of."""
    watches: dict[str, Watch] = {}
    with (
        tempfile.TemporaryDirectory() as place,
        receiving(watches) as bus,
        job_running(Path(place), names) as running,
    ):
        watch = watches["nodes"] = watching(names, running, Path(place), bus)
        began, pauses = time.time(), 0
        while time.time() < began + minutes * 60:
            until(25, watch, running)
            step, us = running.cluster.steps() + 20, 1_000_000
            kind = f"checkpoint,rank=0,op={step},delay_us={CHECKPOINT_S * us:.0f}"
            if pauses % 2:
                kind = f"slow-compute,op={step},count=1,delay_us={IDLE_S * us:.0f}"
            running.cluster._give_order(kind + "\n")
            pauses += 1
        print(
            f"{minutes:g} min, {running.cluster.steps()} steps, {pauses} pauses, "
            f"{len(watch.looks)} looks, {len(watch.suspected)} that suspected, "
            f"{len(watch.received)} notifications, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        print(watch.process.log.read_text(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
