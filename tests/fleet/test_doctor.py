"""What a checkup makes of what a node says, and how results fold."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.fleet.checkup.doctor import Checkup, Trouble, troubles
from oncall.fleet.checkup.doctor_here import Check, check_here
from oncall.fleet.transport import Clock
from oncall.render.text.checkup import fleet_json, fleet_text, here_text

_NOW_NS = 1_800_000_000 * 10**9
_WELL: dict[str, Any] = {
    "oncall_version": "0.2.0",
    "collector": {"alive": True},
    "shards": {"count": 3, "newest_ns": _NOW_NS - 20 * 10**9},
    "rings": {"alive": 8, "died": 0, "dropped": 0, "jobs": {"llama": [0, 1]}, "problems": []},
    "free_bytes": 2**40,
    "gaps": [],
}


def _checkup(host: str = "gpu001", **reported: Any) -> Checkup:
    clock = Clock(_NOW_NS, 10**6, 10**5)
    return Checkup(host, transport="in-process", why="all is honoured", clock=clock,
                   status=_WELL | reported)  # fmt: skip


@pytest.mark.parametrize(
    ("reported", "words"),
    [
        ({"collector": {"alive": False, "problem": "no collector is running"}}, "no collector"),
        (
            {"shards": {"newest_ns": _NOW_NS - 3600 * 10**9}},
            "a job is recording, but the newest shard",
        ),
        ({"free_bytes": 10**6}, "free for evidence"),
        ({"rings": {"dropped": 5}}, "dropped"),
        ({"rings": {"problems": ["x.ring: another version"]}}, "another version"),
        ({"gaps": ["gpu001.1-2.duckdb: damaged"]}, "damaged"),
        ({"problems": ["disk full"]}, "disk full"),
        ({"images": {"text": "", "problems": ["process 7 (python): the hooks need"]}}, "process 7"),
    ],
)
def test_trouble_is_named(reported: dict[str, Any], words: str) -> None:
    (trouble,) = troubles(_checkup(**reported))
    assert words in trouble.what


def test_clock_is_wrong_only_beyond_its_error() -> None:
    near = replace(_checkup(), clock=Clock(_NOW_NS, 3 * 10**9, 2 * 10**9 + 1))
    far = replace(_checkup(), clock=Clock(_NOW_NS, -3 * 10**9, 10**9))
    assert troubles(near) == []
    assert "clock" in troubles(far)[0].what


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["collector", "shards", "rings", "jobs", "newest_ns", "problems", "alive"]),
        inner, max_size=4,
    ),
    max_leaves=12,
))  # fmt: skip
def test_whatever_a_node_says_is_survived(said: Any) -> None:
    status = said if isinstance(said, dict) else {"rings": said, "collector": said, "gaps": said}
    checkup = replace(_checkup(), status=status)
    checkup = replace(checkup, troubles=tuple(troubles(checkup)))
    assert fleet_text([checkup])
    assert json.loads(fleet_json([checkup]))


def test_equal_results_fold_and_lines_fit() -> None:
    well = [_checkup(f"gpu{number:03}") for number in range(1, 499)]
    lost = [
        Checkup(f"gpu{number:03}", kind="refused", troubles=(Trouble("cannot be reached: no route "
                "to host", "ssh -v {host} true"),))
        for number in range(499, 513)
    ]  # fmt: skip
    text = fleet_text([*well, *lost])
    assert "✔ gpu[001-498] (498)  ok" in text
    assert "✖ gpu[499-512] (14)" in text
    assert "$ ssh -v gpu499 true" in text
    assert "498 of 512 nodes are healthy" in text
    assert max(map(len, text.splitlines())) <= 80


def test_nothing_a_node_says_steers_the_terminal() -> None:
    checkup = _checkup(oncall_version="\x1b[2J", collector={"alive": False, "problem": "\x1b[31m"})
    checkup = replace(checkup, troubles=tuple(troubles(checkup)))
    assert "\x1b" not in fleet_text([checkup])


def test_this_machine() -> None:
    checks = check_here()
    names = [check.name for check in checks]
    assert {"oncall", "hooks", "run dir", "collector", "data dir", "ssh"} <= set(names)
    assert here_text(checks).splitlines()[0].startswith("✔ oncall")


def test_what_is_wrong_here_is_counted() -> None:
    text = here_text([Check("a", "ok", "x"), Check("b", "wrong", "y", "fix it")])
    assert "✖ b" in text
    assert "$ fix it" in text
    assert "1 of 2 checks failed" in text
