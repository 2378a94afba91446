"""Roots: laws of any wait-for graph, and the truth of jobs that were played until they blocked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.analysis.common.graph import reaching
from oncall.analysis.hang.roots import Root, find_roots
from oncall.analysis.hang.ties import Node, Place, tie_unfinished, tie_unrecorded, untie_silent
from oncall.evidence import Incident

Edges = dict[Node, list[Node]]


# ------------------------------------------------------------------ any graph


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Edges, dict[Place, tuple[int, int]], set[int]]:
    """Ranks that stand in operations, operations held by ranks, and some ranks that are silent."""
    ranks = st.integers(0, 7)
    places = st.builds(Place, st.integers(1, 3), st.just("coll"), st.integers(1, 2))
    stands = draw(st.dictionaries(ranks, st.sets(places, min_size=1, max_size=2), max_size=8))
    held_by = draw(st.dictionaries(places, st.sets(ranks, max_size=3), max_size=6))
    waits: dict[Place, tuple[int, int]] = {}
    edges: Edges = {}
    for rank, stood_in in stands.items():
        edges[rank] = list(stood_in)
        for place in stood_in:
            waits[place] = waits.get(place, (0, 0))[0] + 1, draw(st.integers(0, 9))
            edges[place] = []
    for place, holders in held_by.items():
        edges[place] = list(holders)
    return edges, waits, draw(st.sets(ranks.filter(lambda rank: rank not in stands), max_size=2))


@given(graphs())
def test_laws_of_roots(graph: tuple[Edges, dict[Place, tuple[int, int]], set[int]]) -> None:
    edges, waits, silent = graph
    roots = find_roots(edges, waits, silent)
    named = [rank for root in roots for rank in root.culprits]
    assert len(named) == len(set(named)), "each culprit is named once"
    ends: set[Node] = {*named, *(root.place for root in roots if root.how == "together")}
    assert reaching(edges, ends) >= set(edges), "whatever waits leads to a root"
    for root in roots:
        if root.how == "cycle":
            for rank in root.culprits:
                assert set(root.culprits) <= reaching(edges, [rank])
        elif root.how == "together":
            assert edges[root.place] == []
        else:
            shown = set(root.culprits) & set(edges[root.place])
            assert shown == set(root.culprits) or (shown and root.how == "silent")
            assert not any(edges.get(rank) for rank in root.culprits)
            assert {rank in silent for rank in root.culprits} == {root.how == "silent"}
    assert [root.how for root in roots].count("silent") <= 1, "they may wait for one another"
    counts = [waits.get(root.place, (0, 0))[0] for root in roots]
    assert counts == sorted(counts, reverse=True)


def place(comm: int, seq: int) -> Place:
    return Place(comm, "coll", seq, (), seq)


def test_culprits_are_shown_where_most_of_them_are_absent() -> None:
    few, many = place(1, 4), place(2, 9)
    edges: Edges = {0: [few], 1: [many], few: [7], many: [7, 8]}
    assert find_roots(edges, {few: (1, 5), many: (1, 1)}, set()) == [Root(many, "absent", (7, 8))]


def test_of_places_that_show_as_much_the_one_waited_in_longest_is_shown() -> None:
    """Who came to wait last may not have waited for as long as a hang lasts."""
    later, first = place(1, 4), place(2, 9)
    edges: Edges = {0: [later], 1: [first], later: [7], first: [7]}
    assert find_roots(edges, {later: (1, 3), first: (1, 5)}, set()) == [Root(first, "absent", (7,))]


def test_silent_and_absent_are_distinguished() -> None:
    here = place(1, 4)
    assert find_roots({0: [here], here: [7, 8]}, {here: (1, 5)}, {8}) == [
        Root(here, "absent", (7,)),
        Root(here, "silent", (8,)),
    ]


def test_the_one_process_that_left_no_recording_holds_up_who_is_in_no_call() -> None:
    one, other = place(1, 4), place(2, 4)
    edges: Edges = {0: [one], one: [7], 1: [other], other: [8]}
    tie_unrecorded(edges, {8}, {7}, (), both=True)
    assert 7 not in edges  # What a recorded call holds up waits for nothing else.
    tie_unrecorded(edges, {8}, set(), (), both=False)
    assert 7 not in edges  # Whose transfers are recorded, and in none, waits for nobody.
    tie_unrecorded(edges, {8}, set(), (), both=True)
    assert find_roots(edges, {one: (1, 5), other: (1, 3)}, {8}) == [Root(other, "silent", (8,))]


@pytest.mark.parametrize("lost", [{8}, {8, 9}], ids=["that others wait for", "and another"])
def test_who_is_in_no_call_waits_for_a_rank_that_is_known_to_have_failed(lost: set[int]) -> None:
    """Rank 7 never called what 0 waits in; 8, which 1 waits for, is dead. Nobody waits for 9."""
    one, other = place(1, 4), place(2, 4)
    waits = {one: (1, 5), other: (1, 3)}
    edges: Edges = {0: [one], one: [7], 1: [other], other: [8]}
    tie_unrecorded(edges, set(), set(), lost, both=False)
    assert [root.culprits for root in find_roots(edges, waits, set())] == [(8,)]


def test_an_early_call_that_lacks_a_rank_holds_up_its_caller_if_that_rank_is_the_cause() -> None:
    """Rank 7 called `early`, went on, and never called what 0 waits in."""
    one, other, early = place(1, 4), place(2, 4), place(3, 2)
    waits = {one: (1, 5), other: (1, 3)}
    for awaited, fallen, found in (
        (True, (), [(8,)]),  # others wait for it, too
        (False, (8,), [(8,)]),  # it is known to have failed
        (False, (), [(7,)]),  # perhaps 7 is needed first
    ):
        edges: Edges = {0: [one], one: [7]} | ({1: [other], other: [8]} if awaited else {})
        tie_unfinished(edges, [(7, early, 8)], fallen)
        assert [root.culprits for root in find_roots(edges, waits, set())] == found


@pytest.mark.parametrize("awaited", [False, True])
def test_two_between_their_calls_are_in_the_transfer_that_both_have_called(awaited: bool) -> None:
    """Ranks 7 and 8, which others wait for; perhaps 8 is in that transfer and in no other."""
    one, other, pair = place(1, 4), place(2, 4), Place(3, "p2p", 0, (7, 8), 2)
    edges: Edges = {0: [one], one: [7], 1: [other], other: [8]}
    tie_unfinished(edges, [(7, pair, 8)] + ([] if awaited else [(8, pair, 7)]), ())
    found = find_roots(edges, {one: (1, 5), other: (1, 3)}, set())
    assert [root.culprits for root in found] == ([(8,)] if awaited else [()])
    assert awaited or found[0].place == pair


def test_who_left_no_recording_is_no_cause_where_another_call_explains_the_wait() -> None:
    """Ranks 0 and 1 wait in a group for 8; all others wait for these two, or for 9."""
    group, world = place(1, 4), place(2, 7)
    edges: Edges = {0: [group], 1: [group], 2: [world], group: [8], world: [8, 9, 0, 1]}
    untie_silent(edges, {8, 9})
    found = find_roots(edges, {group: (2, 5), world: (1, 3)}, {8, 9})
    assert [(root.how, root.culprits) for root in found] == [("silent", (8,))]
    # Where the two lead to no rank that is missing, both may be the cause.
    edges = {0: [group], 1: [group], 2: [world], group: [], world: [8, 9, 0, 1]}
    untie_silent(edges, {8, 9})
    assert edges[world] == [8, 9]


def test_who_left_no_recording_is_no_cause_of_a_deadlock_among_others() -> None:
    one, other = place(1, 4), place(2, 7)
    edges: Edges = {0: [one], 1: [other], one: [1, 8], other: [0]}
    untie_silent(edges, {8})
    found = find_roots(edges, {one: (1, 5), other: (1, 3)}, {8})
    assert [(root.how, root.culprits) for root in found] == [("cycle", (0, 1))]


def test_where_transfers_are_not_recorded_either_of_two_may_wait_for_the_other() -> None:
    one, other = place(1, 4), place(2, 4)
    waits = {one: (1, 5), other: (1, 3)}
    for both, found in ((False, [(7,), (8,)]), (True, [(7, 8)])):
        edges: Edges = {0: [one], one: [7], 1: [other], other: [8]}
        tie_unrecorded(edges, set(), set(), (), both=both)
        assert sorted(root.culprits for root in find_roots(edges, waits, set())) == found


def test_those_without_a_recording_are_one_cause() -> None:
    one, other = place(1, 4), place(2, 4)
    edges: Edges = {0: [one], one: [7], 1: [other], other: [8]}
    assert find_roots(edges, {one: (1, 5), other: (1, 3)}, {7, 8}) == [Root(one, "silent", (7, 8))]


def test_nobody_waits() -> None:
    assert find_roots({}, {}, set()) == []


# ---------------------------------------------------------------- played jobs


def causes(incident: Incident) -> list[tuple[Any, ...]]:
    incident.require(["hang_roots"])
    return incident.con.execute(
        "SELECT job, how, list(rank ORDER BY rank), any_value(victims), any_value(victim_comms) "
        "FROM hang_roots GROUP BY job, how, comm, kind, seq, ends ORDER BY ALL"
    ).fetchall()


@settings(max_examples=18, deadline=None)
@given(data=st.data())
@pytest.mark.slow
def test_the_causes_are_those_of_the_job_that_was_played(
    data: st.DataObject, recorded: Any
) -> None:
    incident, played = data.draw(recorded)
    with incident:
        found = causes(incident)
    for job, one in played.items():
        mine = [row for row in found if row[0] == job]
        named = [rank for row in mine for rank in row[2]]
        assert len(named) == len(set(named))
        assert set(named) == set().union(*one.causes())
        cycles = {frozenset(ranks) for _, how, ranks, *_ in mine if how == "cycle"}
        assert cycles == {cause for cause in one.causes() if len(cause) > 1}
        silent = {rank for _, how, ranks, *_ in mine if how == "silent" for rank in ranks}
        assert silent == {
            rank for rank in set(named) - set().union(*cycles) if not one.observed(rank)
        }
        if len(mine) == 1:
            ((_, _, ranks, victims, comms),) = mine
            assert victims == len(set(one.blocked()) - set(ranks)), "all who wait are its victims"
            assert comms == len({call.comm for call, _ in one.blocked().values()})
        if one.job.swapped is None:
            assert set(named) <= {one.job.stopped}, "in one order, only who stopped is a cause"


def waiting(incident: Incident, seqs: Sequence[int], **more: Any) -> None:
    """Ranks 0, 1, ... in their operation `seqs[rank]` of communicator 1, for 100 ns."""
    rows = {"job": "j", "comm": 1, "kind": "coll", "op": "AllReduce", "rank": range(len(seqs))}
    times = {"enqueued_ns": 10, "observed_ns": 110}
    incident.append("ops", rows | times | {"seq": list(seqs), "rank": list(rows["rank"])} | more)


def test_all_together_is_a_cause_without_a_culprit() -> None:
    with Incident.empty() as incident:
        waiting(incident, [5, 5, 5])
        assert causes(incident) == [("j", "together", [None], 3, 1)]


@pytest.mark.parametrize("same_group", [True, False])
def test_a_send_and_a_receive_of_one_group_call_are_no_deadlock(same_group: bool) -> None:
    """Both ranks send, then receive: in one group call together, one after the other crossed."""
    with Incident.empty() as incident:
        entered = [10, 10, 10, 10] if same_group else [10, 20, 10, 20]
        incident.append(
            "ops",
            {"job": "j", "comm": 1, "kind": "p2p", "rank": [0, 0, 1, 1], "seq": [1, 2, 1, 2]}
            | {"op": ["Send", "Recv"] * 2, "peer": [1, 1, 0, 0]}
            | {"enqueued_ns": entered, "observed_ns": 110},
        )
        incident.append("comms", {"job": "j", "comm": 1, "rank": [0, 1], "size": 2})
        found = [(how, ranks) for _, how, ranks, *_ in causes(incident)]
    assert found == ([("together", [None])] if same_group else [("cycle", [0, 1])])
