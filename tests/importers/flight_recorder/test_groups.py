"""Which communicator a rank means, and who belongs to it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oncall.importers.flight_recorder.groups import (
    Group,
    communicator,
    groups_by_pg_id,
    infer_members,
    number_twins,
)

MEMBERS = st.lists(st.integers(0, 10_000), min_size=1, max_size=20, unique=True).map(tuple)
DESCS = st.text(alphabet=st.characters(exclude_characters="\0"), min_size=1, max_size=10)


@given(DESCS, MEMBERS, st.text(max_size=5), st.text(max_size=5), st.randoms())
def test_members_agree_on_their_communicator(desc, members, one, other, random):
    shuffled = tuple(random.sample(members, len(members)))
    identity = communicator(Group(one, desc, members))
    assert identity == communicator(Group(other, desc, shuffled))
    assert 0 <= identity < 2**64


@given(
    st.lists(
        st.tuples(DESCS, MEMBERS, st.integers(0, 3)),
        unique_by=lambda g: (g[0], frozenset(g[1]), g[2]),
    )
)
def test_different_groups_are_different_communicators(groups):
    identities = {communicator(Group("1", desc, members, n)) for desc, members, n in groups}
    assert len(identities) == len(groups)


def test_the_identity_is_stable():
    assert communicator(Group("7", "tp", (0, 1))) == 0xD6CF137189AF3E8F


LISTED = number_twins(
    [Group("0", "default_pg", (0, 1)), Group("7", "tp", (0, 1)), Group("12", "dp", (0,))]
)


def test_a_pairing_that_an_entry_contradicts_is_not_used():
    assert groups_by_pg_id([0, 3, 10], LISTED, {3: LISTED[2]}) == {3: LISTED[2]}
    assert groups_by_pg_id([0, 3], LISTED, {}) == {}


TP0, TP1, DP0, DP1 = Group("1", "tp"), Group("2", "tp"), Group("3", "dp"), Group("4", "dp")
WORLD = Group("0", "default_pg")


def members(carriers, sizes=None, ranks=None):
    ranks = ranks if ranks is not None else {r for carried in carriers.values() for r in carried}
    return {
        g.name: known.members for g, known in infer_members(carriers, sizes or {}, ranks).items()
    }


def test_a_silent_rank_is_not_guessed():
    # 2 and 3 are silent: each sibling is short of one, and which of which nothing tells.
    assert members({WORLD: {0, 1}, DP0: {0}, DP1: {1}}, ranks=[0, 1, 2, 3])["3"] == (0,)
    # A whole sibling is silent: the groups do not share out the world.
    assert members({WORLD: {0, 1}, TP0: {0, 1}}, ranks=[0, 1, 2, 3])["1"] == (0, 1)


def test_groups_that_are_no_siblings_show_no_missing_rank():
    # Nobody described them, one rank is in none of them, or two share a rank.
    odd = {Group("1", "undefined"): {0, 1}, Group("2", "undefined"): {2}}
    assert members({WORLD: {0, 1, 2}} | odd)["0"] == (0, 1, 2)
    assert members({WORLD: {0, 1, 2, 3}, TP0: {0, 1}, TP1: {2}})["0"] == (0, 1, 2, 3)
    assert members({WORLD: {0, 1, 2}, TP0: {0, 1, 2}, TP1: {2}})["0"] == (0, 1, 2)


@given(st.integers(2, 4), st.integers(2, 4), st.booleans(), st.data())
def test_one_silent_rank_is_always_placed_right(rows, columns, sized, data):
    """In a grid of two-dimensional parallelism with one rank silent nothing is left to guess."""
    silent = data.draw(st.integers(0, rows * columns - 1))
    truth = {
        **{Group(str(1 + r), "tp"): {r * columns + c for c in range(columns)} for r in range(rows)},
        **{
            Group(str(20 + c), "dp"): {r * columns + c for r in range(rows)} for c in range(columns)
        },
    }
    world = set(range(rows * columns))
    seen = {WORLD: world - {silent}} | {group: ranks - {silent} for group, ranks in truth.items()}
    found = infer_members(seen, {WORLD: len(world)} if sized else {}, world - {silent})
    assert {group: set(known.members) for group, known in found.items()} == {WORLD: world} | truth
