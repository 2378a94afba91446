"""Which cases start, before any is followed: what details are worth fetching for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from oncall.evidence.incident import Incident
from oncall.rules.engine.evaluate import Evaluation, NotKnown
from oncall.rules.engine.sandbox import FACT_TIME_LIMIT_S, close_sandbox
from oncall.rules.language.load import apply_overrides
from oncall.rules.language.rulebook import Rulebook


def started_communicators(
    incident: Incident,
    rulebooks: Sequence[Rulebook],
    overrides: Mapping[str, str] | None = None,
    *,
    fact_time_limit_s: float = FACT_TIME_LIMIT_S,
) -> dict[str, tuple[int, ...]]:
    """The communicators of the cases that start, by rulebook; rulebooks without cases are absent.

    Closes the sandbox of the incident's connection for good. A rulebook that cannot run here
    starts nothing; the run that follows reports why.
    """
    close_sandbox(incident.con, bounded=incident.memory_is_bounded)
    started: dict[str, tuple[int, ...]] = {}
    books = apply_overrides(rulebooks, overrides or {})
    incident.replace_parameters(books[0].of_relations if books else {})
    for rulebook in books:
        if not rulebook.enabled:
            continue
        with Evaluation(incident, rulebook, fact_time_limit_s) as evaluation:
            try:
                if evaluation.cases:
                    started[rulebook.name] = _communicators(evaluation)
            except NotKnown:
                continue
    return started


def _communicators(evaluation: Evaluation) -> tuple[int, ...]:
    fact = evaluation.rulebook.book.start_fact
    if "comm" not in evaluation.columns(fact):
        return ()
    return evaluation.distinct(fact, "comm")
