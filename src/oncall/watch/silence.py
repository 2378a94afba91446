"""A log that no longer grows: whether its job has ended, hangs, or may have done either."""

from __future__ import annotations

from dataclasses import dataclass

from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.units import format_duration
from oncall.evidence.incident import Incident
from oncall.watch.log_writers import Writers
from oncall.watch.look import Trouble


@dataclass(frozen=True)
class Silence:
    """How long nothing was written (ns), and whether processes of this machine write the logs."""

    lasted_ns: int
    writers: Writers


def how_it_ended(incident: Incident, silence: Silence) -> str:
    """How it is known that the job is done; empty if it is not known.

    A log rarely says that a process has ended in order. One that says that training is done does,
    and so do its writers, if they are gone and the log states no steps that are still to come.
    """
    progress = _progress(incident)
    if progress.finished:
        return "its log says that it is done"
    if silence.writers == "gone" and progress.of is None:
        return "the processes that wrote its log are gone, and the log shows no fault"
    return ""


def silent_trouble(incident: Incident, silence: Silence) -> Trouble:
    """That nothing was written for too long, of a job that is not known to be done."""
    nothing = f"nothing has been written for {format_duration(silence.lasted_ns)}"
    sentence = {
        "run": f"Hangs: {nothing}, and the processes that write the log still run",
        "gone": f"Ended early: {nothing}, and the processes that wrote the log are gone",
        "unknown": f"Ended or hangs: {nothing}",
    }[silence.writers]
    last = _progress(incident)
    if last.step is not None:
        sentence += f"; last: step {last.step:,}" + (f" of {last.of:,}" if last.of else "")
    return Trouble("watch", "QUIET", "", "critical", "hang", sentence)


@dataclass(frozen=True)
class _Progress:
    finished: bool = False
    step: int | None = None
    of: int | None = None


def _progress(incident: Incident) -> _Progress:
    """How far the job came by its log."""
    try:
        incident.require(["log_progress"])
    except (MissingEvidence, RelationFailed):
        return _Progress()
    rows = incident.con.execute(
        "SELECT bool_or(finished), max(last_iteration), max(of_iterations) FROM log_progress"
    ).fetchall()
    ((finished, step, of),) = rows
    return _Progress(bool(finished), step, of)
