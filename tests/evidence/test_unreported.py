"""Members of communicators on hosts that never answered: named where one number fits only."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql import rows

from oncall.evidence.coverage import GATHERED
from oncall.evidence.incident import Incident
from oncall.evidence.unreported import Group, Member, infer_members, name_unreported


def groups_of(
    lists: Sequence[Sequence[int]], unreported: set[int], role: str | None, first: int = 1
) -> list[Group]:
    """What is reported of communicators with these ranks."""
    reported = [
        Group(
            comm,
            len(ranks),
            role,
            {p: rank for p, rank in enumerate(ranks) if rank not in unreported},
        )
        for comm, ranks in enumerate(lists, first)
    ]
    return [group for group in reported if group.members]


@settings(max_examples=500, deadline=None)
@given(
    tp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    dp=st.sampled_from([2, 3, 4, 8]),
    roles=st.booleans(),
    data=st.data(),
)
def test_what_is_inferred_of_a_grid_is_true(
    tp: int, pp: int, dp: int, roles: bool, data: st.DataObject
) -> None:
    world = tp * pp * dp
    silent = data.draw(st.sets(st.integers(0, world - 1), max_size=world - 1))
    shapes = {
        "tp": [range(first, first + tp) for first in range(0, world, tp)],
        "dp": [
            range(stage * tp * dp + place, (stage + 1) * tp * dp, tp)
            for stage in range(pp)
            for place in range(tp)
        ],
        "pp": [range(place, world, tp * dp) for place in range(tp * dp)],
    }
    groups: list[Group] = []
    truth: dict[int, Sequence[int]] = {}
    for role, lists in shapes.items():
        wide = [ranks for ranks in lists if len(ranks) > 1]
        first = len(truth) + 1
        truth |= dict(enumerate(wide, first))
        groups += groups_of(wide, silent, role if roles else None, first)
    for member in infer_members(groups, silent):
        assert truth[member.comm][member.place] == member.rank


def test_a_whole_silent_node_of_a_grid_is_named() -> None:
    # tp 2, dp 4: ranks 4 and 5 share a node.
    dp = groups_of([(0, 2, 4, 6), (1, 3, 5, 7)], {4, 5}, "dp")
    world = groups_of([range(8)], {4, 5}, "world", first=3)
    assert infer_members([*dp, *world], {4, 5}) == [
        Member(1, 2, 4),
        Member(2, 2, 5),
        Member(3, 4, 4),
        Member(3, 5, 5),
    ]


def test_where_two_numbers_fit_none_is_reported() -> None:
    (group,) = groups_of([(0, 5, 7)], {5, 6}, None)
    assert infer_members([group], {5, 6}) == []


def test_the_one_rank_that_is_left_fits_groups_without_a_stride() -> None:
    (group,) = groups_of([(0, 1, 5, 6)], {5}, None)
    assert infer_members([group], {5}) == [Member(1, 2, 5)]


def gathered(errors: dict[str, str | None], world: int = 4) -> Incident:
    """Ranks 0-2 of a world of four on gpu000 to gpu002, and what became of each host asked."""
    incident = Incident.empty()
    incident.append("jobs", {"job": "j", "world_size": [world]})
    ranks = [0, 1, 2]
    nodes = [f"gpu00{rank}" for rank in ranks]
    incident.append("ranks", {"job": "j", "rank": ranks, "node": nodes})
    incident.append(
        "comms",
        {"job": "j", "comm": 7, "rank": ranks, "comm_rank": ranks, "size": 4, "role": "dp"},
    )
    incident.append(
        "collectors",
        {"node": [*errors], "source": GATHERED, "error": [*errors.values()]},
    )
    return incident


def test_one_silent_host_is_the_home_of_who_is_missing_and_that_is_noted() -> None:
    with gathered({"gpu000": None, "gpu017": "did not answer in time"}) as incident:
        name_unreported(incident.con)
        assert rows(incident, "SELECT rank, size, role FROM comms WHERE comm_rank = 3") == [
            (3, 4, "dp")
        ]
        assert rows(incident, "SELECT node FROM ranks WHERE rank = 3") == [("gpu017",)]
        notes = rows(incident, "SELECT note FROM recordings ORDER BY note")
    assert [note for (note,) in notes] == [
        "rank 3 inferred as missing members of communicators, from the ranks of the others",
        "rank 3 placed on gpu017: all other hosts answered",
    ]
