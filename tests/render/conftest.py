"""Diagnoses made by hand, one for each thing a report must be able to show."""

from __future__ import annotations

import pytest

from oncall.core.diagnosis import (
    Blame,
    Contradiction,
    Coverage,
    Diagnosis,
    Finding,
    Gap,
    Reason,
    RuledOut,
    SkippedRule,
    Stack,
    Step,
)

SINCE_NS = 1_795_142_520_000_000_000  # 2026-11-20 02:02:00 UTC
MINUTE_NS = 60_000_000_000

_STUCK = """SELECT job, comm, seq, rank, waited_ns
FROM progress
WHERE in_flight AND waited_ns > $hang_after"""


def _root() -> Finding:
    return Finding(
        id="F1",
        rulebook="hang",
        verdict="H1",
        title="Not-entered hang",
        fault_class="hang",
        severity="critical",
        confidence=0.87,
        at_ns=SINCE_NS + 7 * MINUTE_NS,
        blame=(Blame("rank", {"rank": 5, "node": "gpu017", "comm": "0x1f2e3d4c5b6a7988"}),),
        case={"job": "llama-405b", "comm": "0x1f2e3d4c5b6a7988", "seq": 13},
        story=(
            Step(
                "Did every member of tp enter operation 13?",
                "no",
                "rank 5 did not enter; ranks 4,6-7 wait there in AllReduce.",
                "absent",
                1,
                _STUCK,
                {"hang_after": "5 min"},
            ),
            Step(
                "Has rank 5 left operations open that its peers completed?",
                "no",
                "",
                "unretired",
                0,
                "SELECT * FROM unretired",
            ),
            Step(
                "",
                "no",
                "rank 5 stopped after operation 12; 507 ranks wait because of it.",
                "absent",
                1,
                _STUCK,
                {"hang_after": "5 min"},
            ),
        ),
        ruled_out=(
            RuledOut("H2", "rank 5 did not enter; ranks 4,6-7 wait there in AllReduce."),
            RuledOut("H3", "rank 5 did not enter; ranks 4,6-7 wait there in AllReduce."),
        ),
        next=(
            "See where rank 5 stands; it is outside the collective: "
            "`ssh gpu017 py-spy dump --native --pid 48211 --locals --some-very-long-option=yes`",
            "Look for a stopped process, a data loader, storage or an exception on gpu017.",
        ),
        sources=("CCL-D 4.2.2 and Fig. 7 (location)",),
        reasons=(
            Reason("members observed", 0.98, "8 of 8 members left evidence"),
            Reason("time of the recording", 0.89, "it does not say when it was taken"),
        ),
        stacks=(
            Stack(
                5,
                "last seen in AllReduce 12",
                (
                    "next at /opt/train/data/loader.py:211",
                    "fetch at /opt/train/data/storage/object_store_whose_name_is_long_enough.py:88",
                    "train_step at /opt/train/loop.py:140",
                    "train at /opt/train/loop.py:92",
                    "main at /opt/train/main.py:33",
                    "<module> at /opt/train/main.py:41",
                ),
            ),
        ),
    )


def _consequence(number: int) -> Finding:
    return Finding(
        id=f"F{number}",
        rulebook="slow",
        verdict="S1",
        title="Slow before the operation",
        fault_class="slow",
        severity="warning",
        confidence=0.6,
        at_ns=None,
        blame=(Blame("rank", {"rank": number + 2}),),
        case={"job": "llama-405b", "comm": f"0x{number}", "seq": 4},
        story=(Step("Is it late?", "yes", "It is late.", "late", 3),),
        explained_by="F1",
    )


@pytest.fixture
def untrusted() -> Diagnosis:
    """Nothing found, of evidence that contradicts itself, with two rulebooks that lack the same."""
    why = "could not be computed: progress (Out of Range Error: Overflow)"
    skipped = tuple(SkippedRule(name, (), why, uncomputed="progress") for name in ("waits", "hang"))
    return Diagnosis(
        job="j",
        since_ns=SINCE_NS,
        until_ns=SINCE_NS + MINUTE_NS,
        coverage=Coverage(
            nodes=1,
            answered=1,
            ranks=2,
            ranks_seen=2,
            gaps=(Gap(why, details="Traceback:\n  in progress\nOverflow"),),
            skipped_rules=skipped,
            contradictions=(
                Contradiction("2 operations completed twice", 2, "AllReduce 5", ("ops",), (0, 1)),
            ),
        ),
        findings=(),
        checked=("slow",),
        rests_on=frozenset(("ops",)),
    )


@pytest.fixture
def hang() -> Diagnosis:
    """One root cause with two consequences, gaps and a skipped rulebook."""
    return Diagnosis(
        job="llama-405b",
        since_ns=SINCE_NS,
        until_ns=SINCE_NS + 19 * MINUTE_NS,
        coverage=Coverage(
            nodes=64,
            answered=62,
            ranks=512,
            ranks_seen=498,
            gaps=(
                Gap("left no recording", ("gpu040", "gpu041"), tuple(range(312, 325))),
                Gap("rank_77.pkl: truncated after 4,096 bytes", (), (77,)),
            ),
            skipped_rules=(
                SkippedRule("network", ("nics", "pings"), "not recorded: NIC counters, pings"),
            ),
        ),
        findings=(_root(), _consequence(2), _consequence(3)),
        notes=("memberships of 2 groups are inferred from their entries",),
        checked=("hang", "slow"),
    )


@pytest.fixture
def two_roots(hang: Diagnosis) -> Diagnosis:
    """Two causes that have nothing to do with each other."""
    from dataclasses import replace

    other = replace(
        _root(),
        id="F2",
        rulebook="slow",
        verdict="S2",
        title="Slow inside the operation",
        fault_class="slow",
        severity="warning",
        blame=(Blame("nic", {"nic": "mlx5_3", "node": "gpu022"}),),
        stacks=(),
    )
    return replace(hang, findings=(_root(), other))


@pytest.fixture
def healthy() -> Diagnosis:
    """Everything was seen and nothing was found."""
    return Diagnosis(
        job="gpt-13b",
        since_ns=SINCE_NS,
        until_ns=SINCE_NS + MINUTE_NS,
        coverage=Coverage(nodes=2, answered=2, ranks=16, ranks_seen=16),
        findings=(),
        checked=("hang", "slow"),
    )


@pytest.fixture
def unseen() -> Diagnosis:
    """Nothing was found, and most of the job was not seen."""
    return Diagnosis(
        job="gpt-13b",
        since_ns=None,
        until_ns=None,
        coverage=Coverage(
            nodes=0,
            answered=0,
            ranks=16,
            ranks_seen=3,
            gaps=(Gap("left no recording", (), tuple(range(3, 16))),),
        ),
        findings=(),
        checked=("hang",),
    )
