"""Which jobs are recorded, and what is true of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

PROGRAMS = [
    *("ddp", "ddp_accumulating", "fsdp", "hsdp", "tensor_parallel", "experts"),
    *("pipeline", "interleaved", "ring", "reinforcement"),
]  # `drawn` draws from these ten: others come in `more`
# What a user should learn of each fault: the class, and whether the culprits are the job's own.
CLASSES = {
    "none": "none",
    "loader_stuck": "hang",
    "read_stuck": "hang",
    "deadlock": "hang",
    "stopped": "hang",
    "killed": "failed",
    "exit": "failed",
    "ended": "failed",
    "worker_exception": "failed",
    "exception": "failed",
    "out_of_data": "hang",
    "save_stuck": "hang",
    "skip": "mismatch",
    "extra": "mismatch",
    "other_op": "mismatch",
    "other_size": "mismatch",
    "slow_compute": "slow",
    "slow_loader": "slow",
    "garbage": "slow",
    "throttled": "slow",
    "starved": "slow",
}


@dataclass(frozen=True)
class Case:
    """One job; `after_s` is how long after the fault it is looked at."""

    program: str
    fault: str = "none"
    ranks: tuple[int, ...] = ()
    world: int = 4
    habit: str = "none"
    step: int = 30
    compute_s: float = 0.05
    after_s: float = 8.0
    timeout_s: float = 600.0
    detail: bool = False
    buffer: int = 400
    profile: int = 0
    seed: int = 0
    patience_s: float = 240.0
    note: str = ""

    @property
    def name(self) -> str:
        parts = [self.program, self.fault]
        parts += [self.habit] * (self.habit != "none")
        parts += ["detail"] * self.detail + ["timeout"] * (self.timeout_s < 60)
        parts += [self.note] * bool(self.note)
        return "-".join([*parts, f"{self.world}r{''.join(map(str, self.ranks))}"])

    @property
    def truth(self) -> dict[str, Any]:
        return {
            "program": self.program,
            "fault": self.fault,
            "class": CLASSES[self.fault],
            "ranks": list(self.ranks),
            "world": self.world,
            "habit": self.habit,
            "step": self.step,
            "compute_s": self.compute_s,
        }


def first() -> Iterator[Case]:
    """The set that the rules were looked at with."""
    for program in PROGRAMS:
        yield Case(program, step=40, profile=15, after_s=4)
    for habit in ("evaluation", "checkpoint", "uneven_lengths", "logging", "monitored"):
        yield Case("ddp", habit=habit, step=70, after_s=4)
    yield Case("fsdp", habit="checkpoint", step=50, after_s=4)
    for program, rank in zip(PROGRAMS[:1] + PROGRAMS[2:9], (2, 1, 3, 0, 3, 2, 1, 2), strict=True):
        yield Case(program, "loader_stuck", (rank,))
    for program, rank in (("ddp", 1), ("fsdp", 3), ("pipeline", 1)):
        yield Case(program, "deadlock", (rank,))
        yield Case(program, "stopped", (rank,))
        yield Case(program, "killed", (rank,))
        yield Case(program, "exception", (rank,))
    yield Case("ddp", "exit", (2,))
    yield Case("ddp", "out_of_data", (2,))
    yield Case("fsdp", "out_of_data", (0,))
    yield Case("ddp", "save_stuck", (0,), habit="checkpoint")
    yield Case("ddp", "loader_stuck", (2,), timeout_s=8, after_s=30)
    yield Case("fsdp", "loader_stuck", (1,), timeout_s=8, after_s=30)
    yield Case("ddp", "loader_stuck", (3,), habit="monitored", timeout_s=8, after_s=30)
    for fault, rank in (("skip", 2), ("extra", 0), ("other_op", 1), ("other_size", 3)):
        yield Case("ddp", fault, (rank,))
        yield Case("fsdp", fault, (rank,))
    for program, rank in zip(PROGRAMS, (1, 2, 3, 0, 2, 1, 3, 0, 1, 2), strict=True):
        yield Case(program, "slow_compute", (rank,), profile=35, after_s=12)
    yield Case("ddp", "slow_loader", (2,), after_s=12)
    yield Case("fsdp", "slow_loader", (2, 3), after_s=12)
    yield Case("ddp", "garbage", (3,), after_s=12)
    yield Case("ddp", "throttled", (1,), after_s=12)
    yield Case("ddp", "starved", (0,), after_s=12, compute_s=0.03)
    yield Case("fsdp", "starved", (2,), after_s=12, compute_s=0.03)


def blind() -> Iterator[Case]:
    """Other sizes, programs and ranks, drawn: recorded and judged once, after the mends."""
    draw = random.Random(20261123)
    programs = PROGRAMS
    faults = ["none"] * 12 + ["loader_stuck"] * 4 + ["deadlock"] * 3 + ["stopped"] * 2
    faults += ["killed", "exception", "out_of_data", "skip", "extra", "other_op", "other_size"]
    faults += ["slow_compute"] * 6 + ["slow_loader"] * 3 + ["garbage", "throttled", "save_stuck"]
    draw.shuffle(faults)
    for number, fault in enumerate(faults):
        world = draw.choice((4, 6, 6))
        mismatch = CLASSES[fault] == "mismatch"
        rank = 0 if fault == "save_stuck" else draw.randrange(world)
        program = draw.choice(programs[:6] if mismatch or fault == "out_of_data" else programs)
        slow, sound = CLASSES[fault] == "slow", fault == "none"
        habit = "none"
        if sound:
            habit = draw.choice(("none", "evaluation", "checkpoint", "uneven_lengths", "logging"))
        yield Case(
            program,
            fault,
            () if sound else (rank,),
            world=world,
            habit="checkpoint" if fault == "save_stuck" else habit,
            step=draw.randrange(22, 55),
            compute_s=draw.choice((0.04, 0.08, 0.12)),
            after_s=15 if slow else 5 if sound else draw.choice((6, 12)),
            timeout_s=8 if fault == "loader_stuck" and draw.random() < 0.4 else 600,
            detail=mismatch and draw.random() < 0.3,
            profile=60 if slow and draw.random() < 0.5 else 0,
            seed=number,
        )


def drawn(seed: int, count: int, wide: bool = False) -> Iterator[Case]:
    """Any number of jobs of 4 to 8 ranks, a third of them sound, a third slow, most profiled.

    `wide` draws from the faults and programs of `more` too: a mesh of two dimensions, a read that
    does not return, a loader's worker that fails, ranks that leave, a core shared with a neighbour.
    """
    draw = random.Random(seed)
    hangs = ["loader_stuck", "loader_stuck", "deadlock", "deadlock", "stopped", "save_stuck"]
    other = ["killed", "exception", "out_of_data", "skip", "extra", "other_op", "other_size"]
    slow = ["slow_compute"] * 4 + ["slow_loader"] * 2 + ["garbage", "throttled"]
    programs = PROGRAMS
    if wide:
        hangs, slow = [*hangs, "read_stuck"], [*slow, "starved"]
        other = [*other, "exit", "ended", "worker_exception"]
        programs = [*PROGRAMS, "fsdp_tensor_parallel", "fsdp_tensor_parallel"]
    shares = (7, 8, 8, 7) if wide else (9, 10, 7, 4)
    kinds = zip((["none"], slow, hangs, other), shares, strict=True)
    faults: list[str] = []
    for faults_of_kind, share in kinds:
        faults += draw.choices(faults_of_kind, k=round(count * share / 30))
    draw.shuffle(faults)
    for number, fault in enumerate(faults):
        world = draw.choice((4, 4, 6, 8))
        sound, is_slow = fault == "none", CLASSES[fault] == "slow"
        mismatch = CLASSES[fault] == "mismatch"
        rank = 0 if fault == "save_stuck" else draw.randrange(world)
        habits = ("none", "evaluation", "checkpoint", "uneven_lengths", "logging")
        step, profiled = draw.randrange(20, 40), draw.random() < 0.8
        yield Case(
            draw.choice(PROGRAMS[:6] if mismatch or fault == "out_of_data" else programs),
            fault,
            () if sound else (rank,),
            world=world,
            habit="checkpoint"
            if fault == "save_stuck"
            else draw.choice(habits)
            if sound or draw.random() < 0.2
            else "none",
            step=step,
            compute_s=draw.choice((0.04, 0.08, 0.12)),
            after_s=12 if is_slow else 5 if sound else draw.choice((6, 12)),
            timeout_s=8 if fault == "loader_stuck" and draw.random() < 0.4 else 600,
            detail=mismatch and draw.random() < 0.3,
            profile=step + 5 if is_slow and profiled else 12 if sound and profiled else 0,
            seed=number,
            note=f"n{number}",
        )


def more() -> Iterator[Case]:
    """What is common beside: a mesh of two dimensions, a loader's worker that fails, a read that
    does not return, a rank whose inputs end first and that leaves, a long checkpoint."""
    mesh = "fsdp_tensor_parallel"
    for seed, habit in enumerate(("none", "evaluation")):
        yield Case(mesh, habit=habit, step=40, profile=15, after_s=4, seed=seed)
    for seed, program in enumerate(("ddp", "fsdp", mesh)):
        yield Case(program, habit="long_checkpoint", step=35, after_s=8 + 6 * seed, seed=seed)
    for seed, (program, rank) in enumerate((("ddp", 1), ("experts", 3), (mesh, 2))):
        yield Case(program, "worker_exception", (rank,), seed=seed)
        yield Case(program, "read_stuck", (rank,), seed=seed)
        yield Case(program, "killed", ((rank + 1) % 4,), seed=seed)
    yield Case("ddp", "ended", (2,))
    yield Case("fsdp", "ended", (3,), seed=1)
    yield Case(mesh, "loader_stuck", (1,))
    yield Case(mesh, "deadlock", (2,), seed=1)
    yield Case(mesh, "skip", (3,), seed=2)
    yield Case(mesh, "slow_compute", (1,), profile=35, after_s=12)
    yield Case(mesh, "slow_loader", (2,), profile=35, after_s=12, seed=1)


SETS = {"first": first, "blind": blind, "more": more}
