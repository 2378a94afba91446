"""Whom an inconclusive answer names, and the answer to a report of what nothing shows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.analysis.lost_time.jobs import Work, layers, no_offset
from tests.findings import finding

from oncall.core.diagnosis import Blame, Claim, Coverage, Diagnosis, Finding, Gap, Lost, Suspect
from oncall.core.errors import ExitCode
from oncall.core.symptom import Symptom, with_symptom
from oncall.evidence.incident import Incident
from oncall.render.contract import document
from oncall.render.text.report import to_text
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.diagnose import diagnose, exit_code
from oncall.use_case.doubt import Doubt
from oncall.use_case.front import front
from oncall.use_case.suspects import with_suspects
from oncall.views import words

ITERATIONS = 8


def even(iteration: int, _rank: int, layer: int) -> int:
    return 10 + 3 * layer + 2 * (iteration % 3)


def quick(_iteration: int, _rank: int, _layer: int) -> int:
    return 2


def rank_0_logs(iteration: int, rank: int, layer: int) -> int:
    return even(iteration, rank, layer) + (3 if rank == 0 and iteration % 4 == 1 else 0)


def rank_2_is_slow(iteration: int, rank: int, layer: int) -> int:
    return even(iteration, rank, layer) + (9 if rank == 2 else 0)


def answer(work: Work, symptom: Symptom = Symptom.UNKNOWN, *, timed: bool = True) -> Diagnosis:
    with Incident.empty() as incident:
        incident.append("ops", layers(work, quick, ITERATIONS, timed=timed, clock=no_offset))
        books = load_rulebooks([shipped_folder()])
        return diagnose(incident, books, overrides=with_symptom({}, symptom))


@pytest.mark.parametrize("symptom", [Symptom.UNKNOWN, Symptom.SLOW])
def test_whom_others_may_wait_for_is_named_first(symptom: Symptom) -> None:
    found = answer(rank_0_logs, symptom)
    (suspect,) = found.suspects
    assert suspect.blame == (Blame("rank", {"rank": 0}),)
    assert suspect.share is not None and 0 < suspect.share < 0.2
    part = f"{100 * suspect.share:.0f} %"
    assert words.doubt(found) == (
        f"most likely rank 0: others wait for it {part} of the time; this could be chance, or "
        "work that rank 0 does for all"
    )
    written = document(found)
    assert written["doubt"] == words.doubt(found)
    assert written["suspects"] == [
        {"blame": [{"kind": "rank", "rank": 0}], "why": suspect.why}
        | {"share": suspect.share, "low": suspect.low, "high": suspect.high}
    ]


def test_who_left_no_recording_is_named_where_its_group_is_slow() -> None:
    """Eight groups of three ranks reduce; group 3 takes twice as long, and lacks rank 19."""
    with Incident.empty() as incident:
        for comm in range(8):
            members, took_ns = [comm, comm + 8, comm + 16], (40 if comm == 3 else 20) * 10**6
            incident.append("comms", {"job": "j", "comm": comm, "rank": members, "size": 3})
            for rank in sorted({*members} - {19}):
                at_ns = [call * 10**9 for call in range(60)]
                call = {"job": "j", "comm": comm, "kind": "coll", "op": "AllReduce", "rank": rank}
                times = {"started_ns": at_ns, "ended_ns": [at + took_ns for at in at_ns]}
                incident.append("ops", call | times | {"seq": [*range(60)], "bytes": 10**7})
        found = diagnose(incident, load_rulebooks([shipped_folder()]))
    assert found.suspects[0].blame == (Blame("rank", {"rank": 19}),)
    assert words.doubt(found) == (
        "most likely rank 19: others wait for it 2 % of the time; no recording shows whether "
        "work there or a link is slow"
    )


@pytest.mark.parametrize(
    ("symptom", "code", "said"),
    [
        (Symptom.UNKNOWN, ExitCode.HEALTHY, "No fault found"),
        (Symptom.SLOW, ExitCode.TOO_LITTLE_COVERAGE, "nothing recorded is slow"),
        (Symptom.HUNG, ExitCode.TOO_LITTLE_COVERAGE, "nothing recorded has stopped"),
    ],
)
def test_a_report_is_not_answered_by_an_all_clear(
    symptom: Symptom, code: ExitCode, said: str
) -> None:
    found = answer(even, symptom)
    assert exit_code(found) == code
    assert found.suspects == ()
    compared = ": compared 6 iterations, operations of 4 ranks"
    _, _, sentence = words.headline(found)
    if symptom is Symptom.UNKNOWN:
        assert sentence == said
    else:
        assert sentence == f"Inconclusive: {said}{compared}"
        assert ("torch.profiler" in found.would_decide) is (symptom is Symptom.SLOW)


def test_what_is_not_recorded_is_said_beside_what_was_compared() -> None:
    found = answer(even, Symptom.SLOW, timed=False)
    assert found.doubt.startswith("nothing recorded is slow: compared 6 iterations, operations of ")
    assert "durations of operations are " in found.doubt


def test_beside_a_fault_nobody_is_suspected() -> None:
    found = answer(rank_2_is_slow, Symptom.SLOW)
    assert (found.result, found.suspects) == ("fault", ())


# ------------------------------------------------------- of ranks that left nothing, of effects


def inconclusive(silent: tuple[int, ...], undecided: str = "") -> Diagnosis:
    gap = Gap("left no recording", ranks=silent, silent=True)
    coverage = Coverage(0, 0, 16, 16 - len(silent), gaps=(gap,))
    return Diagnosis("j", None, None, coverage, (), checked=("a",), undecided=undecided)


def suspected(diagnosis: Diagnosis, doubt: Doubt, reported: Symptom = Symptom.UNKNOWN) -> Diagnosis:
    with Incident.empty() as incident:
        return with_suspects(diagnosis, doubt, incident, reported)


def test_ranks_without_a_recording_are_named_where_the_job_may_have_stopped() -> None:
    found = suspected(inconclusive((3, 5)), Doubt())
    assert words.doubt(found) == (
        "most likely ranks 3,5: left no recording, unlike 14 others; only 14 of 16 ranks were "
        "seen, less than 90 %"
    )
    assert suspected(inconclusive(tuple(range(8))), Doubt()).suspects == ()
    assert suspected(inconclusive((3, 5)), Doubt("too few", "iterations")).suspects == ()


def test_a_hang_that_nothing_shows_is_not_one_that_costs_nothing() -> None:
    seen = replace(inconclusive((3,)), rests_on=frozenset({"ops"}))
    assert words.doubt(suspected(seen, Doubt(), Symptom.HUNG)) == (
        "most likely rank 3: left no recording, unlike 15 others; nothing recorded shows whether "
        "the job has stopped"
    )


def test_whom_others_wait_for_comes_before_who_is_silent() -> None:
    awaited = Suspect((Blame("rank", {"rank": 1}),), "14 ranks wait for it")
    doubt = Doubt("nothing shows that the job went on", suspects=(awaited,))
    found = suspected(inconclusive((3,), doubt.why), doubt)
    assert [one.blame[0].where["rank"] for one in found.suspects] == [1, 3]
    text = to_text(found)
    assert text.startswith("? Inconclusive: most likely rank 1: 14 ranks wait for it\n")
    assert "Other suspects\n  rank 3: left no recording, unlike 15 others\n" in text


def slower(rank: int, share: float) -> Finding:
    lost = Lost(share, low=0.0, high=2 * share)
    claim = Claim("effect", frozenset({"transfer"}), declared=True)
    said = {"title": "Slow sender", "fault_class": "slow", "severity": "info", "confidence": 0.5}
    return finding(blame=(Blame("rank", {"rank": rank}),), lost=lost, claim=claim, **said)


def test_effects_that_are_not_proven_are_suspects_by_their_share() -> None:
    whole = Coverage(0, 0, 16, 16)
    clear = Diagnosis("j", None, None, whole, (slower(1, 0.05), slower(2, 0.2)), checked=("a",))
    assert suspected(clear, Doubt()) == clear
    found = suspected(clear, Doubt(), Symptom.SLOW)
    shares = [(one.share, one.low, one.high) for one in found.suspects]
    assert shares == [(0.2, 0.0, 0.4), (0.05, 0.0, 0.1)]
    assert words.doubt(found) == (
        "most likely rank 2: Slow sender (may cost 20 % of the time); nothing else shows that it "
        "costs the job time"
    )
    followed = replace(slower(2, 0.2), explained_by="F1")
    found = suspected(replace(clear, findings=(slower(1, 0.05), followed)), Doubt(), Symptom.SLOW)
    assert [one.share for one in found.suspects] == [0.05]


def test_a_log_that_ended_well_is_no_answer_to_a_report() -> None:
    coverage = Coverage(0, 0, 4, 4, by_logs="")
    ended = Diagnosis("j", None, None, coverage, (), checked=("a",))
    assert ended.result == "none"
    found = suspected(ended, Doubt(), Symptom.SLOW)
    assert found.doubt == "nothing recorded shows whether the job is slow"


# ------------------------------------------------------------------- where ranks wait


def on_demand(quiet_ms: int) -> Incident:
    """Dumps of 8 ranks, made `quiet_ms` after their last end: all but rank 5 are in AllReduce 3."""
    made = Incident.empty()
    calls = [(rank, seq) for rank in range(8) for seq in (1, 2, 3) if (rank, seq) != (5, 3)]
    at = [100 * seq + rank for rank, seq in calls]
    done = [seq < 3 for _, seq in calls]
    called_ns = [ms * 10**6 for ms in at]
    made.append("comms", {"job": "j", "comm": 1, "rank": list(range(8)), "size": 8})
    made.append(
        "ops",
        {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "bytes": 1 << 20}
        | {"rank": [rank for rank, _ in calls], "seq": [seq for _, seq in calls]}
        | {"enqueued_ns": called_ns, "done": done}
        | {"ended_ns": [ms * 10**6 + 10**7 if ms < 300 else None for ms in at]}
        | {"observed_ns": [None if end else (217 + quiet_ms) * 10**6 for end in done]},
    )  # fmt: skip
    return made


@pytest.mark.parametrize("symptom", list(Symptom))
def test_the_front_is_named_of_too_few_iterations_whatever_is_reported(symptom: Symptom) -> None:
    with on_demand(quiet_ms=150) as incident:
        books = load_rulebooks([shipped_folder()])
        found = diagnose(incident, books, overrides=with_symptom({}, symptom))
    assert found.result == "inconclusive"
    assert found.suspects[0].blame == (Blame("rank", {"rank": 5}),)
    said = words.doubt(found)
    assert said.startswith("most likely rank 5: 7 of 8 ranks are in AllReduce 3; it is at 2; one ")
    assert said.count("one look cannot show whether the job moves (nothing completed for ") == 1
    assert ("reported as hung" in said) is (symptom is Symptom.HUNG)


def test_of_ranks_that_wait_in_several_calls_the_one_at_the_root_is_named() -> None:
    with on_demand(quiet_ms=150) as incident:
        incident.append("comms", {"job": "j", "comm": 2, "rank": [8, 0], "size": 2})
        incident.append(
            "ops",
            {"job": "j", "comm": 2, "kind": "coll", "op": "AllGather", "rank": 8, "seq": [1]}
            | {"enqueued_ns": 310_000_000, "done": False, "observed_ns": 367_000_000},
        )
        found = front(incident)
    assert found is not None
    assert words.suspicion(found) == (
        "rank 5: 8 ranks wait: 7 of 8 ranks are in AllReduce 3; it is at 2"
    )


def test_where_nobody_waits_there_is_no_front() -> None:
    with Incident.empty() as incident:
        incident.append("ops", layers(even, quick, ITERATIONS, timed=True, clock=no_offset))
        assert front(incident) is None


def test_of_two_places_both_who_keep_others_waiting_are_named() -> None:
    """Calls alone, as a log has them: ranks 1 and 6 keep their groups waiting, which meet later."""
    groups = {1: range(4), 2: range(4, 8), 3: range(8)}
    calls = [
        (comm, seq, rank)
        for seq in range(1, 9)
        for comm, ranks in groups.items()
        for rank in ranks
        if seq < 8 or (comm < 3 and rank not in (1, 6))
    ]
    with Incident.empty() as incident:
        for comm, ranks in groups.items():
            incident.append(
                "comms", {"job": "j", "comm": comm, "rank": list(ranks), "size": len(ranks)}
            )
        incident.append(
            "ops",
            {"job": "j", "kind": "coll", "op": "AllReduce", "bytes": 1 << 20}
            | {"comm": [comm for comm, _, _ in calls], "seq": [seq for _, seq, _ in calls]}
            | {"rank": [rank for _, _, rank in calls]}
            | {"enqueued_ns": [(100 * seq + comm) * 10**6 for comm, seq, _ in calls]},
        )  # fmt: skip
        found = front(incident)
    assert found is not None
    assert words.suspicion(found).startswith(
        "ranks 1,6: 6 ranks wait: 3 of 4 ranks are in call 8; they are at 7"
    )
