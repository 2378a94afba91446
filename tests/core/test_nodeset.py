"""Folding and expanding are each other's inverse, against a reader written from scratch."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core import nodeset
from oncall.core.errors import UsageError
from oncall.core.nodeset import expand_ranks, fold_hosts, fold_ranks, named_ranks


def expand_hosts(text: str) -> set[str]:
    """Slurm's and pdsh's reading of `gpu[08-10,12],login`: a bound is padded as it is written."""
    hosts: set[str] = set()
    for before, inside, after in re.findall(r"([^,\[]*)(?:\[([^\]]*)\])?([^,\[]*)(?:,|$)", text):
        if not inside:
            hosts |= {before + after} - {""}
        for span in filter(None, inside.split(",")):
            low, _, high = span.partition("-")
            numbers = range(int(low), int(high or low) + 1)
            hosts |= {f"{before}{number:0{len(low)}d}{after}" for number in numbers}
    return hosts


ranks = st.sets(st.integers(0, 40) | st.integers(0, 10**9))
numbers = st.integers(0, 120).flatmap(
    lambda number: st.sampled_from([f"{number}", f"{number:02d}", f"{number:03d}", f"{number:05d}"])
)
names = st.text("ab0917-.", min_size=1, max_size=12).filter(lambda name: "," not in name)
hosts = st.sets(
    st.builds("".join, st.tuples(st.sampled_from(["gpu", "n", "10.0.0.", ""]), numbers))
    | st.builds(
        "".join, st.tuples(st.just("gpu"), numbers, st.sampled_from(["", "-ib", ".dc.net"]))
    )
    | names,
    max_size=40,
)


@given(ranks)
def test_expanding_undoes_folding(chosen: set[int]) -> None:
    folded = fold_ranks(chosen)
    assert (list(expand_ranks(folded)) if folded else []) == sorted(chosen)
    assert fold_ranks([*chosen, *chosen]) == folded


@given(ranks)
def test_ranks_fold_into_the_fewest_spans(chosen: set[int]) -> None:
    ordered = sorted(chosen)
    gaps = sum(later != earlier + 1 for earlier, later in pairwise(ordered))
    assert len(fold_ranks(chosen).split(",")) == gaps + 1


def test_ranks() -> None:
    assert fold_ranks([]) == ""
    assert fold_ranks([4, 2, 1, 0]) == "0-2,4"
    assert (named_ranks([3, 3]), named_ranks([4, 2, 1, 0])) == ("rank 3", "ranks 0-2,4")
    assert expand_ranks(" 5 , 0 - 2,5") == (5, 0, 1, 2, 5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not a list of ranks"),
        ("1,,2", "not a list of ranks"),
        ("-3", r"at `-3`"),
        ("1-2-3", r"at `1-2-3`"),
        ("ranks 1", r"at `ranks 1`"),
        ("٣", "not a list of ranks"),
        ("9" * 5000, "not a list of ranks"),
        ("2-0", "runs backwards; write 0-2"),
        ("0-999999999999", "more than 1,000,000 ranks"),
    ],
)
def test_what_is_no_list_of_ranks_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        expand_ranks(text)


@given(hosts)
def test_expanding_undoes_folding_of_hosts(chosen: set[str]) -> None:
    assert expand_hosts(fold_hosts(chosen)) == chosen
    assert fold_hosts(sorted(chosen, reverse=True) * 2) == fold_hosts(chosen)


@pytest.mark.parametrize(
    ("chosen", "folded"),
    [
        ([], ""),
        (["gpu017"], "gpu017"),
        (["login", "gpu017"], "gpu017,login"),
        (["gpu017", "gpu018", "gpu020"], "gpu[017-018,020]"),
        ([f"n{i}" for i in range(13)], "n[0-12]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["n99", "n100"], "n[99-100]"),
        (["n9", "n09", "n10"], "n9,n[09-10]"),
        (["n09", "n10", "n99", "n100"], "n100,n[09-10,99]"),
        (["rack1-node2", "rack1-node3", "rack2-node2"], "rack1-node[2-3],rack2-node2"),
        (["gpu1.dc.net", "gpu2.dc.net"], "gpu[1-2].dc.net"),
        (["gpu" + "1" * 5000], "gpu" + "1" * 5000),
        (["gpu٣", "gpu3"], "gpu3,gpu٣"),
    ],
)
def test_hosts(chosen: list[str], folded: str) -> None:
    assert fold_hosts(chosen) == folded


# ------------------------------------------------------------------ expanding host names


@given(st.sets(names.filter(lambda name: name.strip()), max_size=30))
def test_what_is_folded_expands_to_the_same_names(hosts: set[str]) -> None:
    assert set(nodeset.expand_hosts(fold_hosts(hosts))) == hosts


def test_several_brackets_and_their_padding() -> None:
    found = nodeset.expand_hosts("gpu[08-10,12]-ib[0-1], login")
    assert found[:3] == ("gpu08-ib0", "gpu08-ib1", "gpu09-ib0")
    assert found[-1] == "login" and len(found) == 9


@pytest.mark.parametrize("text", ["gpu[1-", "gpu[a]", "gpu]1[", "@rack1", "a!b", "gpu[1-99999999]"])
def test_what_is_no_plain_node_set_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        nodeset.expand_hosts(text)
