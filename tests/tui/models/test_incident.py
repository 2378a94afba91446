"""What the incident screen lists and tells, without a terminal."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.diagnosis import Blame, Finding
from oncall.tui.screens.incident.model import MOST_FOLDED, incident, items, place
from oncall.tui.screens.incident.story import story
from oncall.tui.widgets.reading_list import Item
from oncall.tui.widgets.sheet_table import cell, sheet
from oncall.views.snapshot import Snapshot, Table

from ..snapshots import (
    hang,
    hang_snapshot,
    waiting,
)


def with_findings(*findings: Finding) -> Snapshot:
    snapshot = hang_snapshot()
    return replace(snapshot, diagnosis=replace(snapshot.diagnosis, findings=findings))


def said(items: tuple[Item, ...]) -> list[str]:
    """Every paragraph as plain text."""
    return [
        paragraph.lead + "".join(text for text, _ in paragraph.parts)
        for item in items
        for paragraph in item.paragraphs
    ]


def another() -> Finding:
    """A root cause that has nothing to do with rank 5."""
    blame = (Blame("nic", {"nic": "mlx5_3", "node": "gpu018"}),)
    return replace(hang(), id="F9", rulebook="slow", verdict="S2", title="Slow NIC", blame=blame)


def test_where_consequences_are_too_many_the_cut_is_said() -> None:
    many = [replace(waiting(), id=f"F{n}") for n in range(2, 1002)]
    snapshot = with_findings(hang(), *many)
    opened = incident(snapshot, opened=frozenset({incident(snapshot).lines[0].name}))
    assert len(opened.lines) == 1 + MOST_FOLDED + 1 + 1
    assert "└ … 940 more, in the report" in "\n".join(said(items(opened)))


def test_a_blame_that_grew_is_found_by_its_verdict() -> None:
    before = incident(with_findings(another(), hang()))
    both = (*hang().blame, Blame("rank", {"rank": 6, "node": "gpu017"}))
    after = incident(with_findings(another(), replace(hang(), blame=both)))
    assert place(after.lines, before.lines[1].name, 0) == 1


def test_nothing_steers_the_terminal() -> None:
    evil = replace(hang(), title="evil\x1b[2J", next=("`rm -rf \x1b]52;c;x\x07 /`",))
    snapshot = with_findings(evil)
    text = "\n".join((*said(items(incident(snapshot))), *said(story(snapshot, evil))))
    assert "\x1b" not in text and "\x07" not in text
    assert all("\x1b" not in item.copy for item in story(snapshot, evil))


def test_values_are_written_with_their_units() -> None:
    assert cell("waited_ns", 600_000_000_000) == "10 min"
    assert cell("entered_ns", 1_760_000_150_250_000_000) == "08:55:50.250"
    assert cell("bytes", 2**30) == "1 GiB"
    assert cell("comm", 0xD9) == "0xd9"
    assert cell("done", False) == "no"
    assert cell("peers", [0, 1, 2, 5]) == "0-2,5"
    assert cell("rate", float("nan")) == cell("node", None) == "·"
    assert cell("text", "a\nb\x1b") == "a b\N{REPLACEMENT CHARACTER}"


def test_what_all_rows_share_is_said_once() -> None:
    rows = tuple(("llama", rank, None, 14) for rank in range(3))
    shown = sheet(Table(("job", "rank", "peer", "seq"), rows, 4000))
    assert [column.title for column in shown.columns] == ["rank"]
    assert shown.shared == "job llama, seq 14"
    assert shown.counted == "3 of 4,000 rows shown"
    assert shown.lines() == "rank\n0\n1\n2"


def test_a_broad_row_that_is_alone_is_read_downwards() -> None:
    names = ("job", "rank", "node", "gpu", "waited_ns", "peer", "stack")
    shown = sheet(Table(names, (("llama", 5, "gpu017", 5, 10**9, None, None),), 1))
    assert shown.rows[1] == ("rank", "5")
    assert shown.rows[-2:] == (("waited", "1 s"), ("unknown", "peer, stack"))
