"""The course of a watch: a state and a look in, the next state and what to do out.

Pure: no clock, no files, no network. A trouble counts once two looks in a row show it; an incident
is opened once, updated when its verdict changes, and closed when the job moves again or is done.

    look, look  ->  Gather("opened")  ->  announced("opened")  ->  ...  ->  announced("closed")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Literal

from oncall.core.printable import file_name
from oncall.core.units import NS_PER_S
from oncall.watch.look import Look, Trouble, blind_trouble

Kind = Literal["opened", "updated", "closed"]

# A failed rank's neighbours may log one more step; two looks with steps show that the job goes on.
_OUTLIVED = 2


@dataclass(frozen=True)
class Patience:
    """Durations in ns. `every`: between looks; `confirm`: until a suspected stop is looked at
    again; `calm`: that a job moves without trouble before its incident is closed; `quiet`: between
    two notifications of one incident; `blind`: without evidence before that is reported."""

    every_ns: int = 30 * NS_PER_S
    confirm_ns: int = 3 * NS_PER_S
    calm_ns: int = 120 * NS_PER_S
    quiet_ns: int = 300 * NS_PER_S
    blind_ns: int = 300 * NS_PER_S


@dataclass(frozen=True)
class Open:
    """An incident that is not closed: its name, when it was opened, the number of notifications
    so far, and the verdict they reported last."""

    name: str
    opened_ns: int
    severity: str
    number: int
    announced_ns: int
    verdict: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """All that a watch remembers between two looks.

    `suspected`: the troubles of the last look. `calm_since_ns`: since when looks show no trouble,
    `moved`: whether the job moved since then. `moves`: of troubles that the evidence keeps, by
    name, how often the job has moved since they were first seen.
    """

    job: str
    seen: bool = False
    mark: str = ""
    suspected: tuple[Trouble, ...] = ()
    blind_since_ns: int | None = None
    calm_since_ns: int | None = None
    moved: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)
    incident: Open | None = None


@dataclass(frozen=True)
class Next:
    """The next state, when to look again, and what to do now: `gather` what the look has for a
    notification of that kind, or announce that the incident `closed`."""

    state: State
    look_at_ns: int
    gather: Literal["opened", "updated"] | None = None
    closed: Open | None = None


def after(state: State, look: Look, patience: Patience) -> Next:
    """The course after one more look."""
    if look.blind:
        return _blind(state, look, patience)
    has_moved = bool(look.mark) and bool(state.mark) and look.mark != state.mark
    state = replace(
        state,
        seen=True,
        blind_since_ns=None,
        mark=look.mark or state.mark,
        moves=_moves(state, look, has_moved),
    )
    troubles = tuple(one for one in look.troubles if state.moves.get(one.name, 0) < _OUTLIVED)
    doubtful: tuple[Trouble, ...] = ()
    if look.lasting and has_moved:
        # A job that logs steps is not stopped, whatever its log says above; unless it logs no more.
        doubtful = tuple(one for one in troubles if one.stops)
        troubles = tuple(one for one in troubles if not one.stops)
    if look.ended:
        troubles = tuple(one for one in troubles if one.stops)  # nothing runs slow any more
    if troubles:
        return _suspicious(state, look, troubles, patience)
    if look.ended:
        over = replace(state, suspected=(), calm_since_ns=None, moved=False, incident=None)
        return Next(over, look.at_ns + patience.every_ns, closed=state.incident)
    if not (has_moved or look.sound):
        return Next(state, look.at_ns + patience.every_ns)  # neither well nor in trouble
    calm = _calm(state, look, has_moved, patience)
    return replace(calm, state=replace(calm.state, suspected=doubtful))


def may_confirm(state: State) -> bool:
    """Whether a notification may follow from the next look."""
    known = state.incident.verdict if state.incident is not None else ()
    return _verdict(state.suspected) != known


def confirms_a_stop(state: State) -> bool:
    """Whether that would be about a job that is stopped, which its processes show best."""
    return may_confirm(state) and any(one.stops for one in state.suspected)


def announced(state: State, kind: Literal["opened", "updated"], look: Look) -> State:
    """The state once a notification about `look`, which has troubles, is to be sent."""
    verdict = _verdict(look.troubles)
    before = state.incident
    if kind == "opened" or before is None:
        severity = look.troubles[0].severity
        name = f"{file_name(state.job)}-{_stamp(look.at_ns)}"
        incident = Open(name, look.at_ns, severity, 1, look.at_ns, verdict)
    else:
        number = before.number + 1
        incident = replace(before, number=number, announced_ns=look.at_ns, verdict=verdict)
    return replace(state, incident=incident, suspected=look.troubles)


def _blind(state: State, look: Look, patience: Patience) -> Next:
    since_ns = look.at_ns if state.blind_since_ns is None else state.blind_since_ns
    state = replace(state, blind_since_ns=since_ns)
    if not state.seen or look.at_ns - since_ns < patience.blind_ns:
        # A job that was never seen may not have started.
        return Next(state, look.at_ns + patience.every_ns)
    return _suspicious(state, look, (blind_trouble(look.blind),), patience)


def _suspicious(
    state: State, look: Look, troubles: tuple[Trouble, ...], patience: Patience
) -> Next:
    confirmed = _confirms(state.suspected, troubles)
    settled = _verdict(state.suspected) == _verdict(troubles)
    state = replace(state, suspected=troubles, calm_since_ns=None, moved=False)
    incident = state.incident
    if incident is None:
        # What is slow needs other evidence to confirm it than that of a moment ago.
        soon = not confirmed and any(one.stops for one in troubles)
        again_ns = patience.confirm_ns if soon else patience.every_ns
        return Next(state, look.at_ns + again_ns, gather="opened" if confirmed else None)
    changed = settled and _verdict(troubles) != incident.verdict
    quiet = look.at_ns - incident.announced_ns < patience.quiet_ns
    return Next(
        state,
        look.at_ns + patience.every_ns,
        gather="updated" if changed and not quiet else None,
    )


def _calm(state: State, look: Look, has_moved: bool, patience: Patience) -> Next:
    since_ns = look.at_ns if state.calm_since_ns is None else state.calm_since_ns
    # Where nothing recorded shows movement, a sound diagnosis must do.
    moved = state.moved or has_moved or (look.sound and not state.mark)
    state = replace(state, suspected=(), calm_since_ns=since_ns, moved=moved)
    incident = state.incident
    look_at_ns = look.at_ns + patience.every_ns
    if incident is None or not moved or look.at_ns - since_ns < patience.calm_ns:
        return Next(state, look_at_ns)
    return Next(replace(state, incident=None), look_at_ns, closed=incident)


def _moves(state: State, look: Look, has_moved: bool) -> dict[str, int]:
    """How often the job has moved since each trouble was first seen, where evidence keeps it."""
    if not look.lasting:
        return {}
    return {
        one.name: state.moves[one.name] + has_moved if one.name in state.moves else 0
        for one in look.troubles
        if one.stops
    }


def _confirms(before: tuple[Trouble, ...], now: tuple[Trouble, ...]) -> bool:
    """Whether two looks show the same. Whom a hang names may still change while it spreads."""
    hang = all(any(one.fault_class == "hang" for one in each) for each in (before, now))
    return hang or not {one.name for one in before}.isdisjoint(one.name for one in now)


def _verdict(troubles: tuple[Trouble, ...]) -> tuple[str, ...]:
    """What notifications report: the most severe troubles, in an order of their own."""
    worst = troubles[0].severity if troubles else ""
    return tuple(sorted(one.name for one in troubles if one.severity == worst))


def _stamp(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // NS_PER_S, UTC).strftime("%Y%m%dT%H%M%SZ")
