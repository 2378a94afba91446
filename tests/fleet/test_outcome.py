"""What hosts say alike is said once."""

from __future__ import annotations

import asyncio

import pytest

from oncall.fleet.ask import what_became
from oncall.fleet.checkup.doctor import checkup_of
from oncall.fleet.host import Host
from oncall.fleet.outcome import Outcome, alike


def test_messages_that_differ_in_the_host_alone_are_one() -> None:
    columns = [
        (f"gpu{n:03}", f"root@gpu{n:03}.site: 10.0.0.{n}: Permission denied") for n in range(9)
    ]
    assert alike(columns) == {
        "root@HOST.site: ADDRESS: Permission denied": [f"gpu{n:03}" for n in range(9)]
    }


def test_what_became_of_many_is_one_line() -> None:
    outcomes = {
        name: Outcome(name, "refused", f"unknown host: {name}")
        for name in (f"gpu{n:03}" for n in range(1, 513))
    }
    said = "gpu[001-512] cannot be reached (unknown host: HOST)"
    assert what_became(outcomes) == said


def test_who_answered_without_evidence_says_what_became_of_its_collector() -> None:
    status = {"collector": {"alive": False, "problem": "no collector is running"}}
    outcomes = {"gpu1": Outcome("gpu1", "ok", status=status), "gpu2": Outcome("gpu2", "ok")}
    assert what_became(outcomes) == "gpu1 answered (no collector is running); gpu2 answered"


def test_who_answered_without_evidence_says_what_could_not_be_read() -> None:
    status = {"gaps": ["gpu1.1-2.duckdb: damaged: cut off after 0 bytes", "another"]}
    outcomes = {"gpu1": Outcome("gpu1", "ok", status=status)}
    said = "gpu1 answered (gpu1.1-2.duckdb: damaged: cut off after 0 bytes)"
    assert what_became(outcomes) == said


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (Outcome("gpu1", "ok", seconds=4.9), ""),
        (Outcome("gpu1", "ok", seconds=12.4), "needs 12 s to answer"),
        (Outcome("gpu1", "ok", status={"collector": {"takes_s": 40}}), "needs 40 s to answer"),
        (Outcome("gpu1", "timeout", seconds=20.0), "needs over 20 s to answer"),
        (Outcome("gpu1", "timeout", status={"collector": {"takes_s": 40}}), ""),
        (Outcome("gpu1", "ok", status={"collector": {"takes_s": 1e300}}), ""),
        (Outcome("gpu1", "ok", status={"collector": {"takes_s": "40"}}), ""),
    ],
)
def test_how_long_a_host_needs_is_said_where_it_is_long(outcome: Outcome, said: str) -> None:
    assert outcome.slowness == said
    troubles = [one.what for one in checkup_of(outcome, None, "ssh").troubles]
    assert (said in troubles) == bool(said and outcome.kind == "ok")


def test_a_host_that_no_longer_greets_is_not_called_slow() -> None:
    async def fails() -> Outcome:
        host = Host("gpu1", 0)
        host.outcome = Outcome("gpu1", "ok", seconds=12.0)
        host.fail("timeout", "no answer within 20 s")
        return host.outcome

    assert asyncio.run(fails()).slowness == ""
