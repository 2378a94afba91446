"""What the lines around every screen say: title, time, trouble."""

from __future__ import annotations

from oncall.core.printable import clean, short
from oncall.core.units import NS_PER_S, format_duration
from oncall.render.text.cells import cell_len
from oncall.tui.shell.cursor import TimeCursor
from oncall.tui.shell.state import State
from oncall.views.coverage_words import seen_phrase
from oncall.views.words import instant, leading

# Evidence of a running job: what is older is amber, then red. A gather is due every 5 s.
OLD_S, VERY_OLD_S = 15.0, 60.0


def title_phrase(state: State) -> str:
    """What is looked at: `incident.oncall · llama-70b`."""
    parts = [state.title, state.job or (state.snapshot.job if state.snapshot else "")]
    return " · ".join(short(part) for part in dict.fromkeys(parts) if part) or "opening"


def short_title(state: State, columns: int) -> str:
    """The title in so many columns; its beginning goes first, as jobs differ at the end."""
    title = title_phrase(state)
    while cell_len(title) > columns:
        title = title[2:] if title.startswith("…") else title[1:]
        title = f"…{title}" if title else ""
    return title


def coverage_phrase(state: State) -> str:
    """`498/512 ranks · 60/64 nodes`; empty without a snapshot."""
    return seen_phrase(state.snapshot.diagnosis.coverage) if state.snapshot else ""


def silence_phrase(state: State) -> str:
    """`14 ranks without data`, if any are."""
    last = coverage_phrase(state).split(" · ")[-1]
    return last if last.endswith("without data") else ""


def nodes_phrase(state: State) -> str:
    """`2 nodes silent · collector dead on gpu003 · gateway gw07 lost`: who gives no news of a
    running job."""
    hosts = state.snapshot.hosts if state.snapshot else ()
    silent = [one.host for one in hosts if one.silent]
    dead = [one.host for one in hosts if one.collector and not one.collector_slow]
    slow = [one.host for one in hosts if one.collector_slow]
    parts = []
    if silent:
        who = silent[0] if len(silent) == 1 else f"{len(silent)} nodes"
        parts.append(f"{clean(who)} silent")
    for how, nodes in (("dead", dead), ("silent", slow)):
        if nodes:
            where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
            parts.append(f"collector {how} on {clean(where)}")
    if lost := list(state.snapshot.lost_gateways if state.snapshot else ()):
        which = f"gateway {lost[0]}" if len(lost) == 1 else f"{len(lost)} gateways"
        parts.append(f"{which} lost")
    return " · ".join(parts)


def old_phrase(state: State) -> str:
    """`, 4 s old`: of what is shown of a running job, by the evidence's own time."""
    if not (state.live and state.snapshot and state.cursor.follows):
        return ""
    return f", {age_phrase(state.snapshot_age_s)} old"


def time_phrase(cursor: TimeCursor, live: bool) -> str:
    """Where the time cursor stands, and whether it moves."""
    if (at_ns := cursor.shown_ns) is None:
        return "now" if live else ""
    clock = instant(at_ns, date=False)
    if cursor.follows:
        return f"● live {clock}" if live else f"end {clock}"
    behind_ns = (cursor.last_ns or at_ns) - at_ns
    how = f"▶ {cursor.speed:g}x" if cursor.playing else "❚❚"
    return f"{how} {clock}, {format_duration(behind_ns)} before the {'present' if live else 'end'}"


def narrowing_phrase(state: State) -> str:
    """What is left out of what is shown, and what was noted about it."""
    parts = [f"/{state.filter}"] if state.filter else []
    if state.faults_only:
        parts.append("faults only")
    if solved := solved_phrase(state):
        parts.append(solved)
    if state.notes:
        parts.append("1 note" if state.notes == 1 else f"{state.notes} notes")
    return " · ".join(parts)


def solved_phrase(state: State) -> str:
    """What fixed it; of a running job that is at fault again, what did so before."""
    if state.solved is None:
        return ""
    lead = leading(state.snapshot.diagnosis) if state.snapshot else None
    began_ns = lead.at_ns if lead and state.live else None
    again = began_ns is not None and state.solved.written_ns < began_ns
    return f"{'fixed before by' if again else 'solved'}: {clean(state.solved.text)}"


def trouble_phrase(state: State) -> str:
    """What failed, with the age of what is shown instead."""
    if not state.problem:
        return ""
    age = (
        f" (shown: {age_phrase(state.snapshot_age_s)} old)" if state.snapshot and state.live else ""
    )
    return clean(state.problem.splitlines()[0]) + age


def busy_phrase(state: State) -> str:
    """What is being done, and how far that is."""
    return f"{state.busy}: {state.progress}" if state.progress else state.busy


def activity_phrases(state: State) -> tuple[str, ...]:
    """What is being done, the longest first: with and without how far that is."""
    return tuple(f"{said} …" for said in dict.fromkeys((busy_phrase(state), state.busy)) if said)


def age_phrase(age_s: float) -> str:
    return format_duration(int(age_s) * NS_PER_S)
