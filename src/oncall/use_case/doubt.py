"""Why finding no fault would not mean that the job is healthy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

from oncall.core.diagnosis import Blame, Suspect
from oncall.core.errors import MissingEvidence, RelationFailed
from oncall.core.nodeset import fold_ranks, named_ranks
from oncall.core.printable import LONGEST_VALUE, clean, short
from oncall.core.symptom import Symptom
from oncall.evidence.incident import Incident
from oncall.use_case import evidence

UNTIMED = "no durations of operations are recorded: a slow GPU or link would not show"
IN_PART = (
    "one iteration took much longer, a rank is late in most of them, or no iteration of all ranks "
    "was recorded: a rank that slows the job may not show"
)
FEW = "too few iterations were recorded to show a rank that slows the job"
_ITERATIONS = 4  # of which each call should be seen, where nothing shows how long they are
# What a profile shows to take a rank longer, by the kinds of delay_reasons.
_LONGER = {
    "loader": "it waits for its data loader",
    "garbage": "it collects garbage",
    "launch": "it launches kernels slowly: its host is slow",
    "kernel": "its kernels take longer: its GPU is slow",
    "operator": "its operators take longer: its CPU is slow, or others use it",
    "idle": "its GPU is idle and no kernel takes longer: its host is late",
    "python": "it spends longer outside of PyTorch's operators",
}


class Doubt(NamedTuple):
    """Why a question is open, "" if it is not, what in particular would settle it, and the
    suspects until then."""

    why: str = ""
    lacks: Literal["", "durations", "iterations", "pings"] = ""
    suspects: tuple[Suspect, ...] = ()


def why_undecided(incident: Incident, *, slow: bool, reported: Symptom = Symptom.UNKNOWN) -> Doubt:
    """Why it is not known whether the job moves, or moves as it should; empty if that is known.
    `slow`: some rulebook that ran would say so if the job were slow."""
    stops = (_waiting, _ended_without, _silent, _calls_alone, _seen_once, _alike)
    slows, hides = ((_by_chance, _unexplained), (_not_shown,)) if slow else ((), ())
    first = (*slows, *stops) if reported is Symptom.SLOW else (*stops, *slows)
    doubts = (ask(incident) for ask in (*first, *hides, _by_counters))
    return next((doubt for doubt in doubts if doubt.why), Doubt())


def blamed(ranks: Iterable[int]) -> tuple[Blame, ...]:
    return tuple(Blame("rank", {"rank": rank}) for rank in ranks)


def _by_counters(incident: Incident) -> Doubt:
    return Doubt(evidence.counters_say(incident))


def _waiting(incident: Incident) -> Doubt:
    """That nothing shows whether the job, of which ranks wait, goes on; empty if it is known."""
    count, moving, why = evidence.waiting_ranks(incident)
    return Doubt(one_look(why) if count and not moving else "")


def one_look(why: str | None) -> str:
    """The doubt about ranks that wait, and what speaks for and against."""
    return "one look cannot show whether the job moves" + (f" ({why})" if why else "")


def _ended_without(incident: Incident) -> Doubt:
    """Whose calls completed although another never made them, so that one of them may have ended;
    empty if nobody's did, or somebody went on after."""
    if (found := evidence.first_to_end(incident)) is None:
        return Doubt()
    rank, ended = found
    who = "rank" if len(ended) == 1 else "ranks"
    against = f"{who} {fold_ranks(ended)} completed a call that it never made, and made none since"
    return Doubt(
        "either the call failed when it ended, or its recording is older",
        suspects=(Suspect(blamed([rank]), against),),
    )


def _silent(incident: Incident) -> Doubt:
    """That nothing happened for long before the dumps were written, as where ranks wait for what is
    not recorded, and who is elsewhere; empty if something did."""
    seconds = evidence.silent_until_written(incident)
    last = (
        "all recorded operations are complete, and the dumps were written {:.0f} s after the last"
    )
    return Doubt(last.format(seconds), suspects=_elsewhere(incident)) if seconds else Doubt()


def _calls_alone(incident: Incident) -> Doubt:
    """Of logs of calls: that they cannot show how the job went on; empty if ends are recorded."""
    unseen = "only calls are recorded: nothing shows whether the last ones completed"
    return Doubt(unseen if evidence.only_calls(incident) else "")


def _not_shown(incident: Incident) -> Doubt:
    """Why operations do not show which rank slows the job; empty if they could."""
    try:
        seen = evidence.shown_of(incident)
    except MissingEvidence:
        return Doubt()
    except RelationFailed:
        return Doubt(FEW, "iterations")
    if seen.part:
        return Doubt(IN_PART, "iterations")
    if seen.devices_hide or (seen.calls_hide and not seen.iterations):
        return Doubt(UNTIMED, "durations")
    repeated = seen.fewest_calls is not None and seen.fewest_calls >= _ITERATIONS
    if seen.iterations or (seen.baselines and seen.durations and repeated):
        return Doubt()
    untimed = seen.baselines and not seen.durations
    return Doubt(UNTIMED, "durations") if untimed else Doubt(FEW, "iterations")


def _unexplained(incident: Incident) -> Doubt:
    """Since when the job is slower for reasons that its operations do not show; empty if not."""
    if (found := evidence.unexplained_loss(incident)) is None:
        return Doubt()
    share, since = found
    slower = f"since {since} UTC, iterations take {1 / (1 - share):.1f} times as long as before"
    unseen = "operations show no rank or link that they wait for"
    return Doubt(unseen, "pings", (Suspect((), slower, share),))


def _by_chance(incident: Incident) -> Doubt:
    """For whom the others may have waited; empty if for nobody."""
    rows = evidence.possible_losses(incident)
    if not rows:
        return Doubt()
    suspects, because = [], evidence.late_because(incident)
    for ranks, share, low, high, _ in rows:
        whom, why = ("it", because.get(ranks[0])) if len(ranks) == 1 else ("them", None)
        against = f"others wait for {whom} {100 * share:.0f} % of the time"
        against += f": {_LONGER[why]}" if why else ""
        suspects.append(Suspect(blamed(ranks), against, share, low, high))
    other = ", or work that rank 0 does for all" if rows[0][0] == [0] else ""
    chance = f"this could be chance{other}"
    unseen = "no recording shows whether work there or a link is slow"
    doubt = chance if rows[0][-1] else unseen
    return Doubt(doubt, "iterations", tuple(suspects))


def _alike(incident: Incident) -> Doubt:
    """Why stacks do not show which process is the reason; empty if there are none, or calls are
    recorded, which show by themselves who waits."""
    rows = evidence.unmoved_activities(incident)
    if not rows:
        return Doubt()
    where = ", ".join(f"{count} in {activity}" for activity, count in rows)
    return Doubt(f"no stack shows a process that the others are waiting for ({where})")


def _seen_once(incident: Incident) -> Doubt:
    """Which processes one look at stacks shows to be elsewhere, where that may be chance; empty if
    calls are recorded, which show by themselves who waits."""
    suspects = _elsewhere(incident) if incident.is_empty("ops") else ()
    once = "one snapshot cannot tell a hang from a running job: take the stacks again"
    return Doubt(once if suspects else "", suspects=suspects)


def _elsewhere(incident: Incident) -> tuple[Suspect, ...]:
    """The processes that one look at stacks shows to be elsewhere."""
    rows = evidence.seen_apart(incident)
    if not rows:
        return ()
    ((processes, ranks, doing, others),) = rows
    known = None not in ranks
    whom = ("it" if len(ranks) == 1 else "they") if known else " and ".join(processes)
    verb = "is" if len(processes) == 1 else "are"
    against = f"{whom} {verb} in {doing}, unlike {others} others"
    return (Suspect(blamed(ranks) if known else (), against),)


def why_logs_say_too_little(incident: Incident) -> str | None:
    """Why text, where it is the only evidence, does not show a healthy job; empty if it does."""
    logs = [not incident.is_empty(name) for name in ("log_events", "logged_steps")]
    of_hosts = evidence.has_text_of_hosts(incident)
    # A host's snapshot is no measurement of a job.
    others = ("ops", "launches", "stage_tasks", *(() if of_hosts else ("gpus", "hosts")))
    if not (any(logs) or of_hosts) or not all(map(incident.is_empty, others)):
        return None
    if not any(logs):
        return "text of hosts and ports shows no fault, and nothing shows how the job goes on"
    progress = evidence.logged_progress(incident)
    if progress is None:
        return "the logs' steps could not be read"
    finished, steps, last = progress
    if fatal := evidence.last_words(incident):
        path, line, said, text = fatal
        ended = "training ended, but " if finished else ""
        return f"{ended}{Path(path).name}:{line} {said}: {short(text)}"
    if finished:
        return ""
    if steps:
        end = f"the log ends after step {last:,}" if last is not None else "the log just ends"
        return end + _last_said(incident)
    if evidence.answers_requests(incident):
        return "the log shows no fault of a server that answers; whether it is slow is unknown"
    return "the log shows neither a fault nor steps of training" + _last_said(incident)


def _last_said(incident: Incident) -> str:
    """The last line behind all steps, and who took no part in the last steps."""
    text, behind = evidence.at_the_end(incident)
    ranks = f"; the steps of {named_ranks(behind)} end before the others'" if behind else ""
    return ranks + (f"; its last line: {clean(text, LONGEST_VALUE)}" if text else "")
