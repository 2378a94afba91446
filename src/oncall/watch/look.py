"""What one look at a job shows: its troubles, and how far it came."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from oncall.core.diagnosis import Blame, Diagnosis, FaultClass, Finding, Severity
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.printable import clean
from oncall.evidence.incident import Incident
from oncall.views import words

_ORDER: tuple[Severity, ...] = ("critical", "warning", "info")


@dataclass(frozen=True)
class Trouble:
    """One root cause: what it is, and who. Two looks that show the same one confirm it."""

    rulebook: str
    verdict: str
    who: str
    severity: Severity
    fault_class: FaultClass
    sentence: str

    @property
    def name(self) -> str:
        """What makes it another one: `hang H1 rank 5 on node2`."""
        return f"{self.rulebook} {self.verdict} {self.who}"

    @property
    def stops(self) -> bool:
        """Whether a job with it does not move."""
        return self.fault_class == "hang" or self.severity == "critical"


@dataclass(frozen=True)
class Look:
    """What a look at `at_ns` (Unix time, ns) showed. `blind`: why nothing was seen, else empty.

    `mark` changes whenever the job has moved; empty if nothing shows that. `sound`: the diagnosis
    found no fault and has no doubt. `lasting`: the evidence still shows troubles that are over, as
    a log does. `ended`: how it is known that the job is done, else empty.
    """

    at_ns: int
    troubles: tuple[Trouble, ...] = ()
    mark: str = ""
    sound: bool = False
    lasting: bool = False
    blind: str = ""
    ended: str = ""


def troubles_of(diagnosis: Diagnosis) -> tuple[Trouble, ...]:
    """The root causes that are faults beyond doubt, the most severe first."""
    found = [
        Trouble(
            rulebook=one.rulebook,
            verdict=one.verdict,
            who=_identity(one.blame),
            severity=one.severity,
            fault_class=one.fault_class,
            sentence=clean(f"{one.title}: {words.who(one.blame)}" if one.blame else one.title),
        )
        for one in words.roots(diagnosis)
        if one.severity != "info" and not _suspected_stop(one)
    ]
    return tuple(sorted(found, key=lambda one: _ORDER.index(one.severity)))


def _identity(blame: tuple[Blame, ...]) -> str:
    """Who it is, without the stage, which a quick look does not show."""
    placed = (
        replace(one, where={key: value for key, value in one.where.items() if key != "stage"})
        for one in blame
    )
    return words.who(tuple(placed)) if blame else ""


def _suspected_stop(finding: Finding) -> bool:
    """Whether the job may have stopped: a step that waits looks the same, until it lasts."""
    stops = finding.claim.kind == "effect" and "stop" in finding.claim.effects
    return stops and finding.severity != "critical"


def blind_trouble(why: str) -> Trouble:
    """That nothing is seen of the job any more."""
    return Trouble("watch", "NOT_OBSERVED", "", "warning", "host", f"Not observed: {clean(why)}")


def normal_rest_ns(incident: Incident) -> int:
    """How long a process of the job rested between two calls at most, and went on; 0: unknown."""
    try:
        incident.require(["normal_rests"])
    except (MissingEvidence, RelationFailed):
        return 0
    ((rest_ns,),) = incident.con.execute("SELECT max(still_ns) FROM normal_rests").fetchall()
    return rest_ns or 0


def mark_of(incident: Incident) -> str:
    """How far the job came, by operations, counters and logged steps; empty if none is recorded."""
    rows = incident.con.execute(
        """
        SELECT (SELECT max(ended_ns) FROM ops),
            (SELECT sum(launched) FROM launches
             WHERE at_ns = (SELECT max(at_ns) FROM launches WHERE source = 'nccl_ras')
                 AND source = 'nccl_ras'),
            (SELECT [count(*), max(iteration)] FROM logged_steps)
        """
    ).fetchall()
    ops, launched, steps = rows[0]
    known = {
        "ended_ns": ops,
        "launched": launched and int(launched),
        "steps": steps if steps and steps[0] else None,
    }
    found = {name: value for name, value in known.items() if value is not None}
    return json.dumps(found) if found else ""
