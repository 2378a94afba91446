"""What the incident screen lists and tells, without a terminal."""

from __future__ import annotations

from dataclasses import replace

from oncall.core.diagnosis import Blame, Finding, Stack
from oncall.tui.screens.incident.model import MOST_FOLDED, SEEN, beginning, incident, items, place
from oncall.tui.screens.incident.story import story
from oncall.tui.widgets.reading_list import Item
from oncall.tui.widgets.sheet_table import cell, sheet
from oncall.views.snapshot import Snapshot, Table

from ..snapshots import (
    hang,
    hang_snapshot,
    healthy_snapshot,
    large_snapshot,
    silent_snapshot,
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


def test_consequences_are_folded_under_their_cause() -> None:
    folded = incident(hang_snapshot())
    assert [line.title for line in folded.lines] == ["Not entered", "Coverage"]
    assert folded.lines[0].folds == 1
    assert "explains 1 more finding" in "\n".join(said(items(folded)))
    opened = incident(hang_snapshot(), opened=frozenset({folded.lines[0].name}))
    assert [line.depth for line in opened.lines] == [0, 1, 0]
    assert "explains" not in "\n".join(said(items(opened)))


def test_where_consequences_are_too_many_the_cut_is_said() -> None:
    many = [replace(waiting(), id=f"F{n}") for n in range(2, 1002)]
    snapshot = with_findings(hang(), *many)
    opened = incident(snapshot, opened=frozenset({incident(snapshot).lines[0].name}))
    assert len(opened.lines) == 1 + MOST_FOLDED + 1 + 1
    assert "└ … 940 more, in the report" in "\n".join(said(items(opened)))


def test_a_finding_is_known_by_what_it_says_not_by_its_number() -> None:
    before = incident(hang_snapshot())
    moved = with_findings(
        another(), replace(hang(), id="F2"), replace(waiting(), id="F3", explained_by="F2")
    )
    after = incident(moved)
    assert [line.name for line in after.lines][1] == before.lines[0].name
    assert place(after.lines, before.lines[0].name, 0) == 1


def test_a_blame_that_grew_is_found_by_its_verdict() -> None:
    before = incident(with_findings(another(), hang()))
    both = (*hang().blame, Blame("rank", {"rank": 6, "node": "gpu017"}))
    after = incident(with_findings(another(), replace(hang(), blame=both)))
    assert place(after.lines, before.lines[1].name, 0) == 1


def test_two_findings_alike_are_distinguished() -> None:
    names = [line.name for line in incident(with_findings(hang(), replace(hang(), id="F2"))).lines]
    assert len(set(names)) == 3


def test_where_nothing_is_left_the_place_is_still_one() -> None:
    healthy = incident(healthy_snapshot())
    assert place(healthy.lines, "hang|H1|gone|0", 7) == 0


def test_who_reads_a_folded_consequence_keeps_it() -> None:
    alone = incident(with_findings(waiting()))
    folded = incident(hang_snapshot(), kept=alone.lines[0].name)
    assert alone.lines[0].name in [line.name for line in folded.lines]


def test_what_came_since_is_marked() -> None:
    first = incident(hang_snapshot())
    known = frozenset(line.name for line in first.lines)
    later = incident(with_findings(another(), replace(hang(), id="F2")), known=known)
    assert [line.new for line in later.lines] == [True, False, False]
    assert not any(line.new for line in first.lines)


def test_a_filter_keeps_what_was_seen() -> None:
    snapshot = with_findings(another(), replace(hang(), id="F2"))
    assert [line.title for line in incident(snapshot, pattern="MLX5").lines] == [
        "Slow NIC",
        "Coverage",
    ]
    assert [line.name for line in incident(snapshot, pattern="no such thing").lines] == [SEEN]


def test_a_healthy_snapshot_is_reported_as_plainly_as_a_fault() -> None:
    healthy = incident(healthy_snapshot())
    assert healthy.headline.severity == "healthy"
    assert healthy.headline.sentence == "No fault found"
    text = said(story(healthy_snapshot(), None))
    assert not any("No fault found" in one for one in text)  # it is in the headline
    assert "Coverage" in text[:2]
    assert " ✔ hang  in 61 ms" in text


def test_too_little_coverage_is_no_health() -> None:
    doubtful = incident(silent_snapshot())
    assert doubtful.headline.severity == "unseen"
    text = "\n".join(said(story(silent_snapshot(), None)))
    assert "does not mean the job is healthy" in text
    assert "ranks 8-15 (8 ranks) on gpu018: did not answer in time" in text
    assert "last answer 1 min 35 s ago" in text
    assert "waits: not recorded: NCCL transfers" in text


def test_coverage_counts_who_is_silent() -> None:
    line = incident(large_snapshot()).line(SEEN)
    assert line is not None
    assert "4082/4096 ranks" in line.who and "14 ranks without data" in line.who


def test_the_story_has_its_steps_and_what_each_of_them_shows() -> None:
    shown = story(hang_snapshot(), hang())
    steps = [item for item in shown if item.step is not None]
    assert [item.step for item in steps] == [0, 1, 2]
    assert "5 min?" in steps[0].copy
    text = "\n".join(said(shown))
    assert steps[0].paragraphs[0].aside[0] == "15 rows"
    for part in ("Yes.", "Ruled out", "H2: all members", "Confidence 93 %"):
        assert part in text
    assert "CCL-D" not in text  # behind w


def test_each_command_stands_alone_to_be_copied() -> None:
    commands = [item for item in story(hang_snapshot(), hang()) if item.kind == "command"]
    assert [item.copy for item in commands] == ["py-spy dump --pid 4105"]


def test_ranks_that_stand_in_the_same_place_are_reported_once() -> None:
    frames = tuple(f"frame {number}" for number in range(20))
    stacks = tuple(Stack(rank, "last seen in AllReduce 13", frames) for rank in (3, 5, 4))
    shown = story(hang_snapshot(), replace(hang(), stacks=stacks))
    text = said(shown)
    assert "Ranks 3-5, last seen in AllReduce 13" in text
    assert "   … 12 more frames" in text
    assert next(item for item in shown if item.rank == 3).copy.count("\n") == 19


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


def test_one_row_and_rows_all_alike_are_shown_whole() -> None:
    assert len(sheet(Table(("rank", "node"), ((5, "gpu017"),), 1)).columns) == 2
    assert len(sheet(Table(("rank", "node"), ((5, "a"), (5, "a")), 2)).columns) == 2
    assert sheet(Table(("rank",), (), 0)).rows == ()
    assert sheet(Table((), (), 0)).counted == "no rows: the query found nothing"


def test_a_broad_row_that_is_alone_is_read_downwards() -> None:
    names = ("job", "rank", "node", "gpu", "waited_ns", "peer", "stack")
    shown = sheet(Table(names, (("llama", 5, "gpu017", 5, 10**9, None, None),), 1))
    assert shown.rows[1] == ("rank", "5")
    assert shown.rows[-2:] == (("waited", "1 s"), ("unknown", "peer, stack"))


def test_what_a_join_brings_twice_is_shown_once() -> None:
    table = Table(("rank", "at_ns", "at_ns_1", "gpu_1"), ((5, 7, 7, 3), (6, 8, 8, 4)), 2)
    assert [column.title for column in sheet(table).columns] == ["rank", "at", "gpu_1"]
    table = Table(("rank", "rank_1"), ((5, 6),), 1)
    assert len(sheet(table).columns) == 2


def test_a_story_begins_at_its_conclusion() -> None:
    snapshot = hang_snapshot()
    shown = story(snapshot, hang())
    assert beginning(shown, hang()) == "step 2"
    seen = story(snapshot, None)
    assert beginning(seen, None) == next(item.name for item in seen if item.reads)
    assert beginning((), None) is None
