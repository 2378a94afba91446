"""Effects, symptoms and events put together: laws, and each step of the composition."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.diagnosis import (
    Blame,
    Claim,
    Component,
    Effect,
    Finding,
    Kind,
    Lost,
    Severity,
    Step,
)
from oncall.core.places import Places
from oncall.use_case.cases import Job
from oncall.use_case.compose import compose

S = 10**9
# Two hosts of four ranks; rank r is on GPU r % 4 and NIC mlx5_{r % 4}; one group over both hosts.
PLACES = Places(
    by_node={"n0": frozenset(range(4)), "n1": frozenset(range(4, 8))},
    by_gpu={(f"n{rank // 4}", rank % 4): frozenset({rank}) for rank in range(8)},
    by_nic={(f"n{rank // 4}", f"mlx5_{rank % 4}"): frozenset({rank}) for rank in range(8)},
    by_comm={"0xdp": frozenset({1, 5})},
)
JOB = Job(PLACES)


def finding(
    rulebook: str,
    kind: Kind,
    *effects: Effect,
    severity: Severity = "warning",
    confidence: float = 0.9,
    share: float | None = None,
    low: float | None = None,
    at_s: float | None = None,
    until_s: float | None = None,
    on: Component | None = None,
    fatal: bool | None = None,
    domain: str = "",
    declared: bool = True,
    **where: Any,
) -> Finding:
    kinds = ("comm", "nic", "rank", "gpu", "node")
    named = next((name for name in kinds if name in where), None)
    blame = (Blame("group" if named == "comm" else named, where),) if named else ()  # type: ignore[arg-type]
    return Finding(
        id="",
        rulebook=rulebook,
        verdict=rulebook.upper(),
        title=f"title of {rulebook}",
        fault_class="slow",
        severity=severity,
        confidence=confidence,
        at_ns=None if at_s is None else int(at_s * S),
        blame=blame,
        case={"job": "j"},
        story=(Step("", "yes", f"said by {rulebook}", "fact", 1),),
        claim=Claim(kind, frozenset(effects), on, declared=declared),
        lost=None if share is None else Lost(share, low if low is not None else share / 2),
        until_ns=None if until_s is None else int(until_s * S),
        domain=domain,
        fatal=fatal,
    )


def slow(rulebook: str = "slow", **about: Any) -> Finding:
    return finding(rulebook, "effect", "compute", share=about.pop("share", 0.2), **about)


def composed(*findings: Finding, job: Job = JOB) -> dict[str, Finding]:
    return {one.rulebook: one for one in compose(findings, job)}


def roots(found: Sequence[Finding]) -> list[str]:
    return [one.rulebook for one in found if one.explained_by is None and one.severity != "info"]


# ------------------------------------------------------------------ no effect, no accusation


def test_a_symptom_that_costs_nothing_is_information() -> None:
    heat = finding("heat", "symptom", "compute", node="n0", gpu=2, on="gpu", confidence=0.99)
    assert composed(heat)["heat"].severity == "info"


def test_where_no_job_can_lose_time_symptoms_are_the_answer() -> None:
    heat = finding("heat", "symptom", "compute", node="n0", gpu=2, on="gpu")
    assert composed(heat, job=Job(shows=False))["heat"].severity == "warning"


def test_an_event_alone_is_a_finding() -> None:
    xid = finding("xid", "event", "stop", node="n0", gpu=2, severity="critical")
    assert composed(xid)["xid"].severity == "critical"


def test_what_only_one_witness_shows_and_nobody_measured_is_information() -> None:
    rate = finding("rate", "effect", "transfer", rank=3)
    assert composed(rate)["rate"].severity == "info"
    assert composed(replace(rate, lost=Lost(0.1, 0.0)))["rate"].severity == "info"
    assert composed(replace(rate, lost=Lost(0.1, 0.05)))["rate"].severity == "warning"


def test_two_that_do_not_know_of_one_another_prove_it() -> None:
    rate = finding("rate", "effect", "transfer", rank=3)
    path = finding("path", "effect", "transfer", node="n0")
    found = compose([rate, path], JOB)
    assert roots(found) == ["rate"]
    elsewhere = finding("path", "effect", "transfer", node="n1")
    assert roots(compose([rate, elsewhere], JOB)) == []


@pytest.mark.parametrize(
    ("witness", "roots_found", "sure"), [("log", [], 0.9), ("host", ["faults"], 0.99)]
)
def test_a_rulebook_is_as_many_witnesses_as_it_has_kinds_of_evidence(
    witness: str, roots_found: list[str], sure: float
) -> None:
    said = replace(finding("faults", "effect", "stop", rank=3), witness="log")
    xid = replace(finding("faults", "event", "stop", rank=3), witness=witness)
    root = compose([said, xid], JOB)[0]
    assert root.confidence == pytest.approx(sure)
    rate = replace(finding("faults", "effect", "transfer", rank=3), witness="log")
    path = replace(finding("faults", "effect", "transfer", node="n0"), witness=witness)
    assert roots(compose([rate, path], JOB)) == roots_found


def test_a_rulebook_that_declares_no_kinds_accuses_as_it_says() -> None:
    site = finding("site", "effect", rank=3, declared=False)
    assert composed(site)["site"].severity == "warning"


# ------------------------------------------------------------------------ effect and cause


def test_a_cause_is_shown_with_what_it_costs() -> None:
    heat = finding("heat", "symptom", "compute", node="n0", gpu=3, on="gpu", confidence=0.6)
    found = composed(slow(rank=3, at_s=5), heat)
    root, effect = found["heat"], found["slow"]
    assert (root.severity, root.effect, root.at_ns) == ("warning", "title of slow", 5 * S)
    assert root.lost == effect.lost
    assert [step.say for step in root.story] == ["said by slow", "said by heat"]
    assert effect.explained_by == root.id
    assert effect.cause is not None
    assert effect.cause.verdict == "HEAT"
    assert root.confidence == pytest.approx(1 - 0.4 * 0.1)


@pytest.mark.parametrize(
    ("about", "explains"),
    [
        ({"node": "n0", "gpu": 3, "on": "gpu"}, True),
        ({"node": "n0", "on": "node"}, True),
        ({"node": "n0", "gpu": 2, "on": "gpu"}, False),
        ({"node": "n1", "on": "node"}, False),
        ({"node": "n0", "gpu": 3, "on": "gpu", "at_s": 500}, False),
        ({"node": "n0", "gpu": 3, "on": "gpu", "at_s": 1, "until_s": 2}, False),
        ({"on": "job"}, False),
    ],
)
def test_what_may_explain_an_effect(about: dict[str, Any], explains: bool) -> None:
    symptom = finding("symptom", "symptom", "compute", **about)
    found = composed(slow(rank=3, at_s=60), symptom)
    assert (found["symptom"].severity == "warning") == explains
    assert (found["slow"].explained_by is not None) == explains


def test_a_symptom_explains_only_its_kinds_of_effect() -> None:
    cable = finding("cable", "symptom", "transfer", node="n0", nic="mlx5_3", on="nic")
    assert composed(slow(rank=3), cable)["cable"].severity == "info"
    ring = finding("ring", "effect", "transfer", share=0.1, comm="0xdp")
    cable = replace(cable, blame=(Blame("nic", {"node": "n1", "nic": "mlx5_1"}),))
    assert roots(compose([ring, cable], JOB)) == ["cable"]


def test_the_smallest_component_is_named_then_events_before_symptoms() -> None:
    host = finding("host", "symptom", "compute", node="n0", on="node", confidence=0.99)
    gpu = finding("gpu", "symptom", "compute", node="n0", gpu=3, on="gpu", confidence=0.5)
    xid = finding("xid", "event", "compute", node="n0", gpu=3, on="gpu", confidence=0.5)
    assert roots(compose([slow(rank=3), host, gpu], JOB)) == ["gpu"]
    assert roots(compose([slow(rank=3), host, gpu, xid], JOB)) == ["xid"]


def test_effects_of_one_component_are_one() -> None:
    found = compose(
        [
            slow(rank=3, share=0.2),
            finding("stage", "effect", "compute", share=0.3, low=0.0, node="n0"),
            finding("ring", "effect", "transfer", rank=3),
        ],
        JOB,
    )
    assert roots(found) == ["slow"]
    assert {one.explained_by for one in found[1:]} == {found[0].id}


def test_a_design_is_nobodys_fault() -> None:
    design = finding("design", "symptom", "compute", severity="info", rank=3)
    found = composed(slow(rank=3), design)
    assert found["design"].severity == "info"
    assert found["slow"].explained_by == found["design"].id


# ----------------------------------------------------------------------------------- stops


def stop(rulebook: str, **about: Any) -> Finding:
    return finding(rulebook, "effect", "stop", severity="critical", **about)


def test_information_stops_no_job_and_names_no_cause_beside_others() -> None:
    design = finding("design", "symptom", "stop", "compute", severity="info", rank=5)
    found = composed(stop("hang", rank=5), design)
    assert (found["hang"].severity, found["hang"].explained_by) == ("critical", None)
    heat = finding("heat", "symptom", "compute", node="n1", on="node", confidence=0.5)
    assert roots(compose([slow(rank=5), design, heat], JOB)) == ["heat"]


def test_what_is_fatal_explains_a_stop_of_its_job_and_time() -> None:
    hang = stop("hang", rank=6, at_s=36_000)

    def roots_with(**about: Any) -> list[str]:
        return roots(compose([hang, finding("xid", "event", "stop", fatal=True, **about)], JOB))

    assert roots_with(rank=1, at_s=35_999) == ["xid"]
    assert roots_with(rank=1, at_s=0) == ["hang", "xid"]
    assert roots_with(node="spare9", at_s=35_999) == ["hang", "xid"]


def test_what_began_with_the_effect_is_named_before_what_was_there_long_before() -> None:
    old = finding("memory", "event", "compute", node="n0", at_s=0)
    heat = finding("heat", "symptom", "compute", node="n0", on="node", at_s=36_000)
    assert roots(compose([slow(rank=1, at_s=36_000), old, heat], JOB)) == ["heat"]


def test_of_stops_within_one_another_the_smallest_is_named() -> None:
    node = stop("traffic", node="n0", confidence=0.99)
    assert roots(compose([node, stop("hang", rank=2, confidence=0.9)], JOB)) == ["hang"]
    assert roots(compose([node, stop("hang", rank=6, confidence=0.9)], JOB)) == ["traffic"]


def test_of_a_stop_that_names_nobody_who_is_likely_says_whom_it_is_about() -> None:
    nobody = stop("server")
    for confidence, named in ((0.6, "stacks"), (0.4, "server")):
        odd = replace(stop("stacks", confidence=confidence, rank=3), severity="warning")
        found = compose([nobody, odd], JOB)
        assert (found[0].rulebook, found[0].severity) == (named, "critical")
        assert [one.rulebook for one in found if one.explained_by] == [
            "server" if named == "stacks" else "stacks"
        ]


def test_rival_causes_do_not_make_one_another_surer() -> None:
    warm = finding("warm", "symptom", "compute", rank=1, confidence=0.2)
    heat = finding("heat", "symptom", "compute", node="n0", on="node", confidence=0.6)
    found = composed(slow(rank=1, confidence=0.5), warm, heat)
    assert found["warm"].confidence == pytest.approx(0.6)


def test_the_design_of_a_stage_explains_only_what_most_of_it_loses() -> None:
    work = finding("design", "symptom", "compute", node="n0", on="stage", severity="info")
    assert roots(compose([slow(node="n0"), work], JOB)) == []
    assert roots(compose([slow(rank=2), work], JOB)) == ["slow"]


def test_a_late_rank_of_the_group_that_a_slow_sender_holds_up_is_the_same_loss() -> None:
    sender = finding("send", "effect", "transfer", comm="0xdp", rank=1, on="group", share=0.2)
    calls = finding("calls", "effect", "compute", "transfer", rank=5, share=0.1, confidence=0.8)
    assert roots(compose([sender, calls], JOB)) == ["send"]
    timed = finding("timed", "effect", "compute", rank=5, share=0.1, confidence=0.8)
    assert roots(compose([sender, timed], JOB)) == ["send", "timed"]


def test_a_job_stops_once() -> None:
    found = compose([stop("hang", rank=5, confidence=0.95), stop("stages", rank=2)], JOB)
    assert roots(found) == ["hang"]
    two = compose([stop("hang", rank=5), replace(stop("hang", rank=2), case={"seq": 1})], JOB)
    assert roots(two) == ["hang", "hang"]


def test_what_follows_a_stop_is_no_fault_of_its_own() -> None:
    before, after = slow("before", rank=1, at_s=5), slow("after", rank=1, at_s=90)
    hang = stop("hang", rank=6, at_s=60)
    assert roots(compose([hang, before], JOB)) == ["hang", "before"]
    assert composed(hang, after)["after"].explained_by == composed(hang)["hang"].id
    late = finding("late", "symptom", "transfer", node="n0", nic="mlx5_0", on="nic", at_s=70)
    assert composed(hang, late)["late"].explained_by is not None


def test_a_suspected_stop_of_a_job_that_runs_slowly_is_no_second_fault() -> None:
    maybe = finding("maybe", "effect", "stop", rank=1)
    assert roots(compose([maybe], JOB)) == ["maybe"]
    assert roots(compose([maybe, slow(rank=6)], JOB)) == ["slow"]


def test_of_one_domain_the_first_fatal_event_is_the_root() -> None:
    follow = [
        finding(f"xid{gpu}", "event", "stop", node="n0", gpu=gpu, at_s=1, fatal=False, domain="d")
        for gpu in range(3)
    ]
    root = finding("link", "event", "stop", node="n1", gpu=1, at_s=1.5, fatal=True, domain="d")
    found = compose([*follow, root], JOB)
    assert roots(found) == ["link"]
    later = [replace(one, at_ns=9000 * S) for one in follow[:1]]
    assert roots(compose([*later, root], JOB)) == ["link", "xid0"]


def test_beside_a_surer_finding_what_is_less_likely_than_not_is_information() -> None:
    unsure = slow("unsure", rank=6, confidence=0.3, share=0.1)
    assert roots(compose([unsure], JOB)) == ["unsure"]
    assert roots(compose([unsure, slow(rank=2)], JOB)) == ["slow"]


# ------------------------------------------------------------------------------------ laws

PLACE = st.one_of(
    st.integers(0, 7).map(lambda rank: {"rank": rank}),
    st.sampled_from(["n0", "n1"]).map(lambda node: {"node": node}),
    st.integers(0, 7).map(lambda rank: {"node": f"n{rank // 4}", "gpu": rank % 4, "on": "gpu"}),
    st.just({}),
)
EFFECTS: list[tuple[Effect, ...]] = [("stop",), ("compute",), ("transfer",)]


@st.composite
def statements(draw: st.DrawFn) -> list[Finding]:
    found = []
    for number in range(draw(st.integers(0, 7))):
        kind = draw(st.sampled_from(["effect", "symptom", "event"]))
        about = dict(draw(PLACE))
        about |= {"at_s": draw(st.one_of(st.none(), st.integers(0, 300)))}
        about |= {"confidence": draw(st.sampled_from([0.3, 0.6, 0.9]))}
        effects = draw(st.sampled_from(EFFECTS))
        severity = draw(st.sampled_from(["critical", "warning"]))
        if kind == "effect" and draw(st.booleans()):
            about |= {"share": draw(st.sampled_from([0.02, 0.2])), "low": 0.01}
        found.append(finding(f"b{number}", kind, *effects, severity=severity, **about))
    return found


@given(statements(), st.integers())
def test_the_order_of_findings_does_not_matter(found: list[Finding], seed: int) -> None:
    shuffled = list(found)
    random.Random(seed).shuffle(shuffled)
    assert compose(shuffled, JOB) == compose(found, JOB)


@given(statements())
def test_every_finding_is_shown_once_and_every_consequence_has_a_root(found: list[Finding]) -> None:
    shown = compose(found, JOB)
    assert sorted(one.rulebook for one in shown) == sorted(one.rulebook for one in found)
    assert [one.id for one in shown] == [f"F{number}" for number in range(1, len(found) + 1)]
    by_id = {one.id: one for one in shown}
    for one in shown:
        assert one.explained_by is None or by_id[one.explained_by].explained_by is None
    flags = [one.explained_by is not None for one in shown]
    assert flags == sorted(flags), "roots first"


@given(statements(), PLACE, st.sampled_from(EFFECTS))
def test_symptoms_never_accuse_who_costs_nothing(
    found: list[Finding], place: dict[str, Any], effects: tuple[Effect, ...]
) -> None:
    """Adding a symptom accuses nobody but as the cause of an effect that there was."""
    before = roots(compose(found, JOB))
    found = [*found, finding("added", "symptom", *effects, **place)]
    after = compose(found, JOB)
    assert set(roots(after)) <= {*before, "added"}
    if "added" in roots(after):
        by_name = {one.rulebook: one for one in after}
        name = by_name["added"].id
        explained = [one for one in after if one.explained_by == name and one.cause is not None]
        assert explained and all(one.claim.kind == "effect" for one in explained)


@given(statements(), statements())
def test_more_evidence_never_hides_a_stop(found: list[Finding], more: list[Finding]) -> None:
    more = [replace(one, rulebook=f"more {one.rulebook}") for one in more]
    sure = replace(stop("hang", rank=5), confidence=0.9)
    shown = compose([sure, *found, *more], JOB)
    assert any(one.severity == "critical" for one in shown if one.explained_by is None)
