"""Whether relations that decided nothing in recordings decide a rulebook's tests, or are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

from contributions_ablation import books, facts

from oncall.evidence.registry import all_relations
from oncall.rules.authoring.testing import run_tests, test_files
from oncall.rules.language.load import shipped_folder

# Why a relation stays that neither a recording nor a rulebook's test needs.
REASONS = {
    "contradictions": "shown in every report",
    "uncalled_ends": "says whom an inconclusive answer suspects",
    "device_lags": "says why a slow GPU would not show",
    "clock_offsets": "shown beside stages; no recording has clocks that far off",
    "flow_comms": "traffic from a NIC's own events: no suite has them, tests/node/traffic does",
    "flow_ends": "as flow_comms",
    "flow_epochs": "as flow_comms",
    "operation_spans": "as flow_comms",
    "send_sides": "as flow_comms",
    "expected_traffic": "as flow_comms",
    "segmented_traffic": "as flow_comms",
    "called_transfers": "which transfers of calls alone wait; tests/analysis/hang",
    "comm_shapes": "which communicators are alike, for counts that lag; tests/analysis/hang",
    "iteration_shifts": "iterations that ranks number unlike; tests/analysis/tasks",
    "layers": "layers of unequal cost by design; tests/analysis/common",
}


def owner_of(name: str) -> str:
    """The first test of a rulebook that fails when the relation is empty, or the reason why it
    stays; "" if there is neither."""
    reading = readers_of(name)
    with emptied(name):
        for file in test_files(shipped_folder()):
            if file.name.removesuffix(".test.yaml") in reading:
                for result in run_tests(file):
                    if not result.passed:
                        return f"{file.name}:{result.line}"
    return REASONS.get(name, "")


@cache
def readers_of(name: str) -> frozenset[str]:
    """The rulebooks that read it, by facts or by other relations."""
    reached = {name}
    for entry in all_relations().values():  # each after those that it reads
        if reached & {*entry.inputs}:
            reached.add(entry.name)
    return frozenset(
        book.name
        for book in books()
        if any(reached & {*facts()[f"{book.name}.{fact}"].tables} for fact in book.book.facts)
    )


@contextmanager
def emptied(name: str) -> Iterator[None]:
    """Within it the relation has no rows, whatever it reads."""
    known = all_relations()
    kept = known[name]

    def nothing(*_: Any, **__: Any) -> dict[str, list[Any]]:
        return {column.name: [] for column in kept.columns}

    known[name] = replace(kept, sql=None, compute=nothing, view=False)
    try:
        yield
    finally:
        known[name] = kept
