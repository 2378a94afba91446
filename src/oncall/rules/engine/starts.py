"""Which cases start, before any is followed: what details are worth fetching for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from oncall.evidence.incident import Incident
from oncall.rules.engine.evaluate import Evaluation, NotKnown
from oncall.rules.engine.sandbox import close_sandbox
from oncall.rules.language.load import apply_overrides
from oncall.rules.language.rulebook import Rulebook


def started_communicators(incident: Incident, rulebooks: Sequence[Rulebook]) -> set[int]:
    """The communicators of the cases that start.

    Closes the sandbox of the incident's connection for good. A rulebook that cannot run here
    starts nothing; the run that follows reports why.
    """
    close_sandbox(incident.con, bounded=incident.memory_is_bounded)
    started: set[int] = set()
    books = apply_overrides(rulebooks, {})
    incident.replace_parameters(books[0].of_relations if books else {})
    for rulebook in books:
        if rulebook.enabled:
            with suppress(*NotKnown), Evaluation(incident, rulebook) as evaluation:
                if evaluation.cases:
                    started |= evaluation.distinct(rulebook.book.start_fact, "comm")
    return started
