"""Random jobs as people run them: every program, fault-free in several ways or with one fault.

A slow fault is kept only if it makes the steps of its ranks an eighth longer, as the same job
without it says. Fault-free jobs are those that look ill: imbalanced by design, with samples of
very different lengths, dumped during an evaluation or a checkpoint, idle, just started.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from oncall.core.errors import UsageError
from oncall_lab.jobs.fault import CLASSES, MISMATCHES, JobFault
from oncall_lab.jobs.play import Played, play
from oncall_lab.jobs.scenario import PIPELINES, PROGRAMS, JobScenario
from oncall_lab.jobs.simulation import lengthened

MS, SECOND, MINUTE = 10**6, 10**9, 60 * 10**9
FLAVOURS = ("plain", "imbalance", "uneven", "evaluation", "checkpoint", "started", "idle")
HANGS = ("never_calls", "mismatch", "never_ends")
SLOW = ("slow_compute", "slow_host", "slow_link", "stalls")
FAMILIES = ("none", "hang", "slow")
LEAST = 1.125  # of a step, for slowness that is to be found
_TRIES = 12
_SIZES = ((8, 4), (16, 4), (16, 8), (32, 4), (32, 8), (64, 8))


@dataclass(frozen=True)
class Case:
    """A job to diagnose, played. `impact`: of a slow fault, on the length of a step."""

    scenario: JobScenario
    flavour: str
    played: Played
    impact: float | None = None

    @property
    def kind(self) -> str:
        faults = self.scenario.faults
        return faults[0].kind if faults else f"none_{self.flavour}"


def case(seed: int, number: int, family: str | None = None) -> Case:
    """The case of this number in the set of a seed; `family`: none, hang, slow, or in turn.

    Raises UsageError if no draw makes a fault that acts.
    """
    family = family or FAMILIES[number % len(FAMILIES)]
    program = PROGRAMS[number // len(FAMILIES) % len(PROGRAMS)]
    for attempt in range(_TRIES):
        rng = np.random.default_rng([seed, number, attempt, zlib.crc32(b"jobs")])
        drawn = _draw(rng, program, family)
        if drawn is not None:
            return drawn
    raise UsageError(f"no {family} case of {program} in {_TRIES} draws")


def _draw(rng: np.random.Generator, program: str, family: str) -> Case | None:
    values = _job(rng, program)
    if family == "none":
        flavour, values = _fault_free(rng, values)
        scenario = JobScenario(**values)
        return Case(scenario, flavour, play(scenario))
    sound = JobScenario(**values)
    kinds = HANGS if family == "hang" else SLOW
    if family == "hang":
        values |= _dumped_after_hang(rng)
    fault = _fault(rng, str(rng.choice(kinds)), sound)
    if fault.kind in ("slow_compute", "slow_link"):
        values["timing"] = bool(rng.random() < 0.8)  # without it there is little to see
    scenario = JobScenario(**values, faults=(fault,))
    played = play(scenario)
    if family == "hang":
        hung = played.strike is not None and np.isinf(played.steps[-1]).any()
        return Case(scenario, "", played) if hung else None
    impact = lengthened(scenario, played, play(sound))
    return Case(scenario, "", played, round(impact, 3)) if impact >= LEAST else None


def _job(rng: np.random.Generator, program: str) -> dict[str, Any]:
    ranks, group = _SIZES[int(rng.integers(len(_SIZES)))]
    if program in PIPELINES or program == "context_parallel":
        group, ranks = 4, min(ranks, 32)
    serving = program == "serving"
    layers = int(rng.choice((2, 4, 6)))
    return {
        "seed": int(rng.integers(2**31)),
        "program": program,
        "ranks": ranks,
        "group": group,
        "gpus_per_host": int(rng.choice((4, 8))) if ranks > 8 else 4,
        "steps": int(rng.integers(100, 200)) if serving else int(rng.integers(16, 30)),
        "earlier_steps": int(rng.choice((0, 300, 5000))),
        "layers": layers,
        "micro_batches": group * 2 if program in PIPELINES else int(rng.choice((1, 1, 2))),
        "forward_ns": int(rng.uniform(20, 120) * MS),
        "model_bytes": int(rng.uniform(0.5, 3) * 2**30),
        "sync_every": int(rng.choice((1, 1, 1, 5))),
        "gap_ns": int(rng.uniform(0.05, 1.0) * SECOND),
        "jitter": float(rng.uniform(0.01, 0.04)),
        "uneven": float(rng.choice((0.01, 0.05, 0.1))),
        "imbalance": float(rng.choice((0.0, 0.0, 0.1, 0.2))),
        "load_ns": int(rng.uniform(1, 8) * MS),
        "warm_up_steps": int(rng.integers(1, 4)),
        "log_every": int(rng.choice((1, 5, 10))),
        "log_ns": int(rng.uniform(1, 20) * MS),
        "evaluate_every": int(rng.choice((0, 0, 10))),
        "checkpoint_every": int(rng.choice((0, 0, 15))),
        "checkpoint_ns": int(rng.uniform(0.5, 4) * SECOND),
        "dump_at": float(rng.uniform(0.75, 1.0)),
        "dump_spread_ns": int(rng.choice((20, 80, 400)) * MS),
        "dump": "on_demand",
        "timing": bool(rng.random() < 0.5),
        "ring_entries": int(rng.choice((200, 500, 2000))),
        "clock_offset_ns": int(rng.choice((0.2, 2, 10)) * MS),
    }


def _fault_free(rng: np.random.Generator, values: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    program = values["program"]
    flavours = ["plain", "uneven", "started"]
    if program in ("moe", "context_parallel", *PIPELINES):
        flavours += ["imbalance", "imbalance"]
    flavours += ["idle"] if program == "serving" else ["evaluation", "checkpoint"]
    flavour = str(rng.choice(flavours))
    every = values["steps"] - 2
    changes: dict[str, dict[str, Any]] = {
        "imbalance": {"imbalance": float(rng.uniform(0.3, 0.7))},
        "uneven": {"uneven": float(rng.uniform(0.2, 0.4))},
        # At the end of the run, so that it may be going on as the ranks are dumped.
        "evaluation": {"evaluate_every": every, "checkpoint_every": 0, "earlier_steps": 0,
                       "dump_at": float(rng.uniform(0.9, 1.0))},
        "checkpoint": {"checkpoint_every": every, "evaluate_every": 0, "earlier_steps": 0,
                       "dump_at": float(rng.uniform(0.8, 1.0))},
        "started": {"steps": max(3, values["steps"] // 8), "earlier_steps": 0},
        "idle": {"gap_ns": int(rng.uniform(2, 20) * SECOND)},
    }  # fmt: skip
    return flavour, values | changes.get(flavour, {})


def _dumped_after_hang(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "dump": str(rng.choice(("watchdog", "aborted", "on_demand"))),
        "aborted_share": float(rng.choice((1.0, 1.0, 0.6))),
        "dump_after_ns": int(rng.uniform(3, 9) * MINUTE),
        "timeout_ns": int(rng.choice((10, 30)) * MINUTE),
        "dump_spread_ns": int(rng.choice((80, 2000)) * MS),
    }


def _fault(rng: np.random.Generator, kind: str, sound: JobScenario) -> JobFault:
    step = int(rng.uniform(0.3, 0.7) * sound.steps)
    values: dict[str, Any] = {"ranks": (int(rng.integers(sound.ranks)),), "step": step}
    if CLASSES[kind].startswith("H"):
        values["call"] = float(rng.random())
    if kind == "mismatch":
        values["how"] = str(rng.choice(MISMATCHES))
    if kind in ("slow_compute", "slow_host"):
        values["factor"] = float(rng.uniform(1.3, 2.0))
    if kind == "slow_link":
        values["factor"] = float(rng.uniform(3, 10))
    if kind == "stalls":
        stage_passes = 4 if sound.program in PIPELINES else 1
        values["pause_ns"] = int(rng.uniform(6, 15) * sound.forward_ns * stage_passes)
        values["every"] = int(rng.integers(2, 5))
    return JobFault(kind, **values)


def cases(seed: int, count: int, family: str | None = None) -> Iterator[Case]:
    """The cases of a set; a number of which no draw acts is left out."""
    for number in range(count):
        try:
            yield case(seed, number, family)
        except UsageError:
            continue
