"""Events that are one failure: of one host and time, and of a kind that a device brings about."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from tests.findings import finding

from oncall.core.diagnosis import Blame, BlameKind, Claim, Finding
from oncall.core.places import Places
from oncall.evidence.incident import Incident
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.use_case.cases import Job
from oncall.use_case.compose import TOGETHER_NS, compose
from oncall.use_case.diagnose import diagnose

NS_PER_MIN = 60 * 10**9
PLACES = Places(by_node={"n1": frozenset({0, 1}), "n2": frozenset({2, 3})})


def event(verdict: str, where: dict[str, Any], at_min: float | None = 10, **more: Any) -> Finding:
    kind: BlameKind = "rank" if "rank" in where else "node"
    return finding(
        id="",
        rulebook=verdict.lower(),
        verdict=verdict,
        title=verdict,
        fault_class="host",
        at_ns=None if at_min is None else int(at_min * NS_PER_MIN),
        blame=(Blame(kind, where),) if where else (),
        claim=Claim("event", frozenset({"stop"}), declared=True),
        **more,
    )


def stop(where: dict[str, Any]) -> Finding:
    made = event("STOP", where)
    return Finding(**{**vars(made), "claim": Claim("effect", frozenset({"stop"}), declared=True)})


def roots(*findings: Finding, places: Places = PLACES) -> set[frozenset[str]]:
    """The groups of findings that are one; the same in any order."""
    found = [
        {
            one.id: frozenset(
                {one.verdict, *(each.verdict for each in shown if each.explained_by == one.id)}
            )
            for one in shown
            if one.explained_by is None
        }
        for order in permutations(findings)
        for shown in [compose(order, Job(places))]
    ]
    assert all(one == found[0] for one in found)
    return set(found[0].values())


def gpu(where: dict[str, Any], at_min: float | None = 10, **more: Any) -> Finding:
    return event("GPU", where, at_min, part="gpu", **more)


def error(
    where: dict[str, Any], at_min: float | None = 10, parts: tuple[str, ...] = ("gpu",), **more: Any
) -> Finding:
    return event("ERROR", where, at_min, parts=frozenset(parts), **more)


ONE, TWO = {frozenset({"GPU", "ERROR"})}, {frozenset({"GPU"}), frozenset({"ERROR"})}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [(("gpu", "cpu"), ONE), (("nic",), TWO), ((), TWO)],
    ids=["a GPU does that", "a NIC does", "the program did it itself"],
)
def test_a_device_explains_only_what_such_a_device_brings_about(
    parts: tuple[str, ...], expected: set[frozenset[str]]
) -> None:
    assert roots(gpu({"rank": 0, "node": "n1"}), error({"rank": 0}, parts=parts)) == expected


@pytest.mark.parametrize(
    ("device", "program", "expected"),
    [
        ({"node": "n1"}, {"rank": 1}, ONE),
        ({"node": "n1"}, {"rank": 2}, TWO),
        ({"node": "n1"}, {}, ONE),
        ({"node": "n9"}, {"rank": 7}, ONE),
        ({"node": "n9"}, {"rank": 7, "node": "N9.site"}, ONE),
        ({"node": "10.0.0.9"}, {"rank": 7, "node": "10.0.0.8"}, TWO),
        ({"node": "n9"}, {"rank": 2}, TWO),
        ({"rank": 0, "node": "n1"}, {"rank": 1}, TWO),
    ],
    ids=[
        "its host",
        "another",
        "unknown rank",
        "both unknown",
        "names",
        "addresses",
        "a known rank",
        "another rank",
    ],
)
def test_what_a_device_brings_about_is_on_its_host_if_both_are_known(
    device: dict[str, Any], program: dict[str, Any], expected: set[frozenset[str]]
) -> None:
    assert roots(gpu(device), error(program)) == expected


@pytest.mark.parametrize(
    ("at_min", "until_min", "expected"),
    [(11, None, ONE), (15, None, TWO), (None, 9, ONE), (None, 5, TWO), (None, 30, ONE)],
)
def test_an_error_whose_time_is_only_known_by_its_neighbours(
    at_min: float | None, until_min: float | None, expected: set[frozenset[str]]
) -> None:
    until_ns = None if until_min is None else int(until_min * NS_PER_MIN)
    program = error({"rank": 0}, at_min, until_ns=until_ns)
    assert TOGETHER_NS == 2 * NS_PER_MIN
    assert roots(gpu({"node": "n1"}), program) == expected


def test_the_device_is_the_root_of_what_it_brings_about_even_if_that_is_smaller() -> None:
    shown = compose([error({"rank": 0}, None), gpu({"node": "n1"})], Job(PLACES))
    assert [one.verdict for one in shown] == ["GPU", "ERROR"]


def test_errors_of_two_starts_that_no_device_explains_stay_two() -> None:
    first, second = event("FIRST", {}, None, parts=frozenset()), error({}, None)
    assert roots(first, second) == {frozenset({"FIRST"}), frozenset({"ERROR"})}


@pytest.mark.parametrize("fatal", [True, False, None])
def test_what_is_fatal_to_a_device_stops_ranks_elsewhere(*, fatal: bool | None) -> None:
    found = roots(gpu({"node": "n1"}, fatal=fatal), stop({"rank": 3}))
    assert (len(found) == 1) is (fatal is True)


def test_an_event_explains_what_came_after_it_however_exactly_its_time_is_known() -> None:
    for at_min, until_ns in ((8, None), (None, 8 * NS_PER_MIN)):
        assert roots(error({}, at_min, until_ns=until_ns), stop({"rank": 3})) == {
            frozenset({"ERROR", "STOP"})
        }


def test_of_one_domain_the_fatal_event_is_the_root_wherever_it_is() -> None:
    rest = [
        event(f"V{n}", {"node": f"n{n}"}, part="gpu", domain="rack", fatal=False) for n in (1, 2)
    ]
    lost = gpu({"node": "n3"}, 10.1, domain="rack", fatal=True)
    assert roots(*rest, lost) == {frozenset({"V1", "V2", "GPU"})}
    assert compose([*rest, lost], Job(PLACES))[0].verdict == "GPU"


def test_a_log_and_a_host_that_say_the_same_are_two_witnesses() -> None:
    waited = {"job": "j", "path": "job.log", "line": 10, "attempt": 1, "seq": 77, "kind": "timeout"}
    xid = {"node": "n1", "source": "kernel", "path": "dmesg", "line": 1, "text": "fell off the bus"}
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "j", "world_size": [4]})
        incident.append(
            "ranks", {"job": "j", "rank": list(range(4)), "node": ["n0", "n0", "n1", "n1"]}
        )
        incident.append("watchdog_reports", waited | {"rank": [0, 1, 2], "comm_rank": [0, 1, 2]})
        incident.append("host_events", xid | {"code": ["xid_79"], "device": "0000:9b:00.0"})

        root, wait = diagnose(incident, load_rulebooks([shipped_folder()])).findings

    assert [(one.rulebook, one.witness) for one in (root, wait)] == [
        ("faults", "host"),
        ("faults", "log"),
    ]
    assert wait.explained_by == root.id
    assert [reason.why for reason in root.reasons][-1] == "the log shows the effect"
