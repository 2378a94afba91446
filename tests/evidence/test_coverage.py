"""Coverage: who is expected, who was seen, and why the others were not."""

from __future__ import annotations

from oncall.core.diagnosis import Gap
from oncall.evidence.coverage import measure
from oncall.evidence.incident import Incident
from oncall.views.coverage_words import gap_phrase, seen_phrase


def test_a_note_on_some_recordings_names_their_ranks(incident: Incident) -> None:
    of_file, of_all = "its rank is that in the file's name", "it states no node"
    for kind, ranks, notes in (
        ("kineto", [0, 1, 2, 3], [None, of_file, of_file, "it is cut off"]),
        ("flight_recorder", [0, 1], [of_all, of_all]),
        ("log", [None, None], [None, "it is cut off"]),
    ):
        incident.append("recordings", {"job": "j", "kind": kind, "rank": ranks, "note": notes})
    assert sorted(measure(incident.con)[1]) == [
        "flight_recorder: it states no node",
        "kineto of rank 3: it is cut off",
        "kineto of ranks 1-2: its rank is that in the file's name",
        "log: it is cut off",
    ]


def test_members_without_evidence_are_silent(incident: Incident) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2, 3]})
    incident.append("ranks", {"job": "j", "rank": [0, 1, 2, 3], "node": ["a", "a", "b", "b"]})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 1]})
    coverage, _ = measure(incident.con)
    assert (coverage.ranks, coverage.ranks_seen) == (4, 2)
    assert (coverage.nodes, coverage.answered) == (2, 1)
    assert coverage.gaps == (Gap("left no recording", ("b",), (2, 3), silent=True),)
    assert coverage.share == 0.5


def test_a_silent_rank_whose_node_nobody_named_is_said_to_be_so(incident: Incident) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2]})
    incident.append("ranks", {"job": "j", "rank": [0, 1], "node": ["a", "b"]})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 1]})
    coverage, _ = measure(incident.con)
    assert coverage.gaps == (
        Gap("left no recording; on which node is not known", (), (2,), silent=True),
    )
    assert seen_phrase(coverage) == "2/3 ranks · 2/2 known nodes · 1 rank without data"


def test_ranks_that_only_texts_name_are_a_lower_bound(incident: Incident) -> None:
    ranks = [rank for rank in range(64) if rank != 41]
    incident.append("watchdog_reports", {"job": "j", "rank": ranks, "kind": "timeout"})
    coverage, _ = measure(incident.con)
    assert (coverage.ranks, coverage.ranks_seen, coverage.at_least) == (64, 63, True)
    assert coverage.gaps == (Gap("left no recording", (), (41,), silent=True),)
    assert seen_phrase(coverage) == "63 of at least 64 ranks · 1 rank without data"
    beyond, _ = measure(incident.con, least=128)
    assert seen_phrase(beyond) == "63 of at least 128 ranks · 65 ranks without data"


def test_lines_of_a_log_do_not_stand_for_a_recording_that_a_rank_did_not_leave(
    incident: Incident,
) -> None:
    """A stopped process wrote to the log before: its calls are as unknown as without the log."""
    incident.append("jobs", {"job": "j", "world_size": 3})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 1]})
    incident.append("log_events", {"job": "j", "rank": [0, 1, 2], "kind": "process"})
    coverage, _ = measure(incident.con)
    assert (coverage.ranks_seen, coverage.ranks) == (2, 3)
    assert coverage.gaps == (Gap("left no recording", (), (2,), silent=True),)


def test_a_world_size_that_does_not_match_is_noted(incident: Incident) -> None:
    incident.append("jobs", {"job": "j", "world_size": [2, 8]})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 9]})
    coverage, notes = measure(incident.con)
    assert coverage.ranks == 9
    assert notes == (
        "the recordings state different world sizes: 2, 8",
        "the stated world size is 8, but there is evidence of rank 9",
    )


def test_a_node_without_what_others_have_is_a_gap(incident: Incident) -> None:
    note = "no RDMA device here"
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 1]})
    incident.append(
        "collectors",
        {
            "node": ["a", "b", "b", "a", "b", "b"],
            "source": ["nics", "nics", "nics", "gpus", "gpus", "hosts"],
            "at_ns": [1, 1, 2, 1, 1, 1],
            "rows": [7, 0, 0, 0, 0, 3],
            "note": [None, None, note, "no GPUs", "no GPUs", "no clocks"],
        },
    )
    coverage, _ = measure(incident.con)
    assert coverage.gaps == (Gap(f"collector nics: {note}", ("b",)),)


def test_an_absurd_world_size_is_not_believed(incident: Incident) -> None:
    incident.append("jobs", {"job": "j", "world_size": 2**31 - 1})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0]})
    coverage, notes = measure(incident.con)
    assert coverage.ranks == 1
    assert notes == ("a world size of 2147483647 is not believed",)


def test_who_does_not_answer_ras_is_not_seen(incident: Incident) -> None:
    incident.append(
        "launches",
        {
            "job": "j",
            "comm": 1,
            "rank": [0, 1, 2],
            "launched": 5,
            "state": ["running", "unresponsive", "dead"],
        },
    )
    coverage, _ = measure(incident.con)
    assert (coverage.ranks, coverage.ranks_seen) == (3, 1)
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2, 3]})
    coverage, _ = measure(incident.con)
    assert (coverage.ranks, coverage.ranks_seen) == (4, 1)
    assert coverage.gaps == (
        Gap("dead, says NCCL RAS", (), (2,), silent=True),
        Gap("did not answer, says NCCL RAS", (), (1,), silent=True),
        Gap("left no recording", (), (3,), silent=True),
    )


def test_recordings_tell_their_problems(incident: Incident) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1, 2, 3]})
    incident.append("ops", {"job": "j", "comm": 1, "seq": 1, "rank": [0, 2]})
    incident.append(
        "recordings",
        {
            "job": "j",
            "kind": "megatrace",
            "path": ["d/rank_0", "d/rank_1", "d/rank_2", "d/rank_3"],
            "rank": [0, 1, 2, 3],
            "rows": [5, 0, 5, None],
            "holes": [0, 0, 1200, None],
            "problem": [None, None, None, "truncated"],
            "note": [None, None, "clocks differ", None],
        },
    )
    coverage, notes = measure(incident.con)
    assert coverage.ranks_seen == 3
    assert coverage.gaps == (
        Gap("recorded no operation", (), (1,), silent=True),
        Gap("rank_3: truncated", (), (3,), files=("rank_3",)),
        Gap("the recorder itself lost 1,200 operations", (), (2,)),
    )
    assert notes == ("megatrace of rank 2: clocks differ",)


def test_equal_problems_are_one_gap(incident: Incident) -> None:
    incident.append(
        "recordings",
        {"job": "j", "path": ["a", "b"], "rank": [4, 5], "problem": "not a dump"},
    )
    (gap,) = measure(incident.con)[0].gaps
    assert gap == Gap("2 files: not a dump", (), (4, 5), files=("a", "b"))
    assert gap_phrase(gap) == "ranks 4-5: 2 files: not a dump (a, b)"


def test_collectors_tell_their_losses(incident: Incident) -> None:
    incident.append(
        "collectors",
        {
            "node": ["a", "b", "b"],
            "source": ["nics", "nics", "gpus"],
            "dropped": [0, 7, 0],
            "error": [None, None, "no NVML"],
        },
    )
    coverage, _ = measure(incident.con)
    assert coverage.gaps == (
        Gap("collector gpus: no NVML", ("b",)),
        Gap("collector nics dropped 7 rows", ("b",)),
    )
    assert (coverage.nodes, coverage.answered) == (2, 0)
