"""What goes on and what has ended, as one diagnosis of a running job follows the other."""

from __future__ import annotations

from dataclasses import replace

from oncall.console.ended import Past
from oncall.core.diagnosis import Blame, Claim, Coverage, Diagnosis, Finding, Lost
from oncall.core.units import NS_PER_S
from oncall.views.words import ended_phrase, over

NOW_NS = 1_760_000_000 * NS_PER_S


def at(seconds: float) -> int:
    return NOW_NS + round(seconds * NS_PER_S)


def finding(rank: int, began_s: float, verdict: str = "STOPPED", **fields: object) -> Finding:
    known = {
        "rulebook": "process",
        "title": "Process stopped",
        "fault_class": "hang",
        "severity": "critical",
        "confidence": 0.9,
        "claim": Claim("effect", frozenset({"stop"})),
    }
    return Finding(
        id="F1",
        verdict=verdict,
        at_ns=at(began_s),
        blame=(Blame("rank", {"rank": rank, "node": f"gpu{rank}"}),),
        case={},
        story=(),
        **{**known, **fields},  # type: ignore[arg-type]
    )


def slow(rank: int, began_s: float) -> Finding:
    claim = Claim("effect", frozenset({"compute"}))
    return finding(rank, began_s, "S1", title="Slow computation", severity="warning",
                   fault_class="slow", claim=claim, lost=Lost(0.2))  # fmt: skip


def diagnosed(*findings: Finding, **fields: object) -> Diagnosis:
    coverage = Coverage(2, 2, 8, 8)
    said = Diagnosis("demo", at(0), at(100), coverage, findings, checked=("hang",))
    return replace(said, **fields)  # type: ignore[arg-type]


def seen(*diagnoses: tuple[float, Diagnosis], resumed_s: float | None = None) -> Past:
    past = Past()
    resumed_ns = None if resumed_s is None else at(resumed_s)
    for second, diagnosis in diagnoses:
        past = past.after(diagnosis, at(second), lambda _: resumed_ns)
    return past


def test_a_stop_ends_when_operations_complete_again() -> None:
    past = seen(
        (10, diagnosed(finding(5, 4))),
        (15, diagnosed(finding(5, 4))),
        (20, diagnosed()),
        resumed_s=18,
    )
    [ended] = past.ended
    assert (ended.since_ns, ended.until_ns, ended.times) == (at(4), at(18), 1)
    assert ended_phrase(ended, at(198)) == "ended 3 min ago, once, 14 s"
    assert not past.going_on
    assert past.before(at(17)) == () and past.before(at(18)) == (ended,)


def test_what_slows_the_job_no_more_has_ended_though_the_evidence_still_holds_it() -> None:
    mended = replace(slow(3, 4), until_ns=at(31))
    said = diagnosed(mended)
    past = seen((30, diagnosed(slow(3, 4))), (60, said), (90, said))
    [ended] = past.ended
    assert (ended.since_ns, ended.until_ns, ended.times) == (at(4), at(31), 1)
    assert not past.going_on and past.present(said).findings == ()
    opened_later = seen((60, said))  # it is shown as what it is: over
    assert not opened_later.ended and opened_later.present(said).findings == (mended,)
    again = diagnosed(replace(slow(3, 95), id="F2"), mended)
    past = past.after(again, at(120), lambda _: None)
    assert [one.id for one in past.present(again).findings] == ["F2"]


def test_nothing_ends_while_the_job_is_stopped_or_too_little_is_seen() -> None:
    stopped = seen((10, diagnosed(slow(3, 2))), (20, diagnosed(finding(5, 15))))
    assert not stopped.ended
    unseen = diagnosed(coverage=Coverage(2, 1, 8, 4), checked=("hang",))
    assert unseen.doubt
    assert not seen((10, diagnosed(slow(3, 2))), (20, unseen)).ended


def test_what_a_stop_cost_counts_with_it_and_is_no_fault_of_now() -> None:
    cost, own = slow(5, 3), replace(slow(5, -200), id="F3")
    follows = replace(slow(4, 3), id="F2", explained_by="F1")
    past = seen((10, diagnosed(finding(5, 4))), (40, diagnosed(cost, follows)), resumed_s=30)
    assert [one.finding.verdict for one in past.ended] == ["STOPPED"]
    assert not past.present(diagnosed(cost, follows)).findings
    # Slow for much longer than it was stopped, or somebody else: that is another fault.
    assert past.present(diagnosed(own)).findings == (own,)
    other = slow(6, 5)
    assert past.present(diagnosed(other)).findings == (other,)
    assert not past.after(diagnosed(cost), at(50), lambda _: None).going_on


def test_the_same_once_more_is_counted_and_the_newest_comes_first() -> None:
    past = seen(
        (10, diagnosed(finding(5, 4))),
        (20, diagnosed(slow(3, 18))),
        (40, diagnosed(finding(5, 30))),
        (50, diagnosed()),
        resumed_s=19,
    )
    said = [(one.finding.verdict, one.times) for one in past.ended]
    assert sorted(said) == [("S1", 1), ("STOPPED", 2)]
    [twice] = [one for one in past.ended if one.times == 2]
    assert "2 times" in ended_phrase(twice, None) and "in all" in ended_phrase(twice, None)


def test_only_what_cost_time_is_known_to_be_over() -> None:
    assert not over(slow(3, 2))
    assert over(replace(slow(3, 2), until_ns=at(8)))
    assert not over(replace(finding(5, 2), until_ns=at(8)))
