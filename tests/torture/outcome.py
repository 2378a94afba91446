"""What a scenario found, and the table that a run prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace


class Skipped(Exception):
    """This machine cannot run the scenario; says what is missing."""


@dataclass(frozen=True)
class Outcome:
    """One row of the table. `failures` say what broke a promise; empty: it was kept."""

    what: str
    times: int  # how often it was done
    lost: int = 0  # committed rows that are gone
    doubled: int = 0  # rows that are there twice
    seconds: float = 0.0
    note: str = ""
    failures: tuple[str, ...] = field(default=())
    skipped: bool = False

    @property
    def kept(self) -> bool:
        return not (self.failures or self.lost or self.doubled)


def timed(what: str, scenario: Callable[[], Outcome]) -> Outcome:
    """Run a scenario; what it raises is a failure, or says why it cannot run here."""
    began = time.monotonic()
    try:
        outcome = scenario()
    except Skipped as why:
        return Outcome(what, 0, note=f"not run: {why}", skipped=True)
    except Exception as error:  # the other scenarios still run
        outcome = Outcome(what, 0, failures=(f"{type(error).__name__}: {error}",))
    return replace(outcome, seconds=time.monotonic() - began)


def table(outcomes: Iterable[Outcome]) -> str:
    """The outcomes as a Markdown table, each broken promise below it."""
    rows = ["| scenario | times | lost | doubled | seconds | result |", "|---|---|---|---|---|---|"]
    broken = []
    for each in outcomes:
        if each.skipped:
            rows.append(f"| {each.what} | - | - | - | - | {each.note} |")
            continue
        result = "kept" if each.kept else "BROKEN"
        note = f"{result}; {each.note}" if each.note else result
        rows.append(
            f"| {each.what} | {each.times:,} | {each.lost:,} | {each.doubled:,} "
            f"| {each.seconds:,.0f} | {note} |"
        )
        broken += [f"BROKEN {each.what}: {failure}" for failure in each.failures]
    return "\n".join([*rows, *broken])
