"""Lines that are JSON, as loggers of programs write them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from oncall.importers.logs.clock import Clock
from oncall.importers.logs.prefixes import peeled

AT_NS = 1_795_748_400_250_000_000


@pytest.mark.parametrize(
    ("key", "stamp"),
    [
        ("ts", 1795748400.25),
        ("time", 1795748400250),
        ("timestamp", 1795748400250000),
        ("created", AT_NS),
        ("time", "1795748400250"),
        ("@timestamp", "2026-11-27T03:00:00.250Z"),
        ("asctime", "2026-11-27 03:00:00,250"),
        ("datetime", "2026-11-27T04:00:00.250+01:00"),
    ],
)
def test_stamps(key: str, stamp: Any) -> None:
    line = peeled(1, json.dumps({key: stamp, "level": "INFO", "message": "step 3"}), Clock(None))
    assert (line.at_ns, line.text) == (AT_NS, "step 3")


@pytest.mark.parametrize("stamp", [2.5, 17, "soon"])
def test_a_number_that_is_no_time_of_day_is_no_stamp(stamp: Any) -> None:
    assert peeled(1, json.dumps({"time": stamp, "msg": "step 3"}), Clock(None)).at_ns is None


def test_who_says_it_and_what_failed() -> None:
    said = {"event": "failed", "rank": 3, "hostname": "gpu007"}
    line = peeled(1, json.dumps(said | {"exc_info": "Traceback:\n  f()\nKeyError: 'x'"}), Clock(0))
    assert (line.rank, line.node, line.text) == (3, "gpu007", "KeyError: 'x'")


def test_numbers_of_a_step_are_text() -> None:
    line = peeled(1, '{"step": 10, "loss": 2.5, "step_time": 1.2}', Clock(None))
    assert line.text == "step: 10, loss: 2.5, step_time: 1.2"


def test_other_json_stays_as_it_is() -> None:
    assert peeled(1, '{"name": "x"}', Clock(None)).text == '{"name": "x"}'
