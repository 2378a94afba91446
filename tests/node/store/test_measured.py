"""Laws of thinned readings: what happened in total, and its extremes, are kept all the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.evidence.incident import Incident
from oncall.node.store.answer import answer
from oncall.node.store.measured import EVENTS, FINEST_NS, PINGS, READINGS, stretch_ns
from oncall.node.store.parts import ReceivedPart, load_parts
from oncall.node.store.wire import Part, Request

S = 10**9
BEGAN_NS = 1_767_225_600 * S


def received(incident: Incident, request: Request) -> Incident:
    """What a console holds after asking, as its own incident."""
    console = Incident.empty()
    with tempfile.TemporaryDirectory() as folder:
        parts = list(_saved(incident, request, Path(folder)))
        assert list(load_parts(console.con, parts)) == []
    return console


def _saved(incident: Incident, request: Request, folder: Path) -> Iterator[ReceivedPart]:
    for number, frame in enumerate(answer(incident.con, request)):
        if isinstance(frame, Part):
            path = folder / f"{number}.parquet"
            path.write_bytes(frame.parquet)
            yield ReceivedPart("a", frame.table, frame.rows, path)


def digest(incident: Incident, **more: Any) -> Incident:
    return received(incident, Request("digest", job="j", **more))


def reading(seconds: float, hz: float) -> np.ndarray[Any, np.dtype[np.int64]]:
    return BEGAN_NS + (np.arange(int(seconds * hz)) * S / hz).astype(np.int64)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 99),
    seconds=st.integers(1, 900),
    fast=st.floats(0.1, 0.9),
)
def test_totals_and_the_peak_of_a_minute_survive(seed: int, seconds: int, fast: float) -> None:
    at = reading(seconds, 4)
    grown = np.random.default_rng(seed).integers(0, 10**9, len(at))
    grown[int(fast * len(at))] = 10**10
    with Incident.empty() as incident:
        incident.append(
            "nics",
            {"node": "a", "nic": "n", "port": 1, "at_ns": at, "tx_bytes": np.cumsum(grown)},
        )
        with digest(incident) as console:
            kept = console.con.execute("SELECT at_ns, tx_bytes FROM nics ORDER BY 1").fetchnumpy()
    assert kept["at_ns"][0] == at[0] and kept["at_ns"][-1] == at[-1]
    assert kept["tx_bytes"][-1] - kept["tx_bytes"][0] == grown[1:].sum()
    rates = np.diff(kept["tx_bytes"]) / np.maximum(np.diff(kept["at_ns"]), 1)
    assert (
        len(at) < 2 or np.isclose(rates.max(initial=0), 10**10 / (S / 4)) or not fast * len(at) >= 1
    )
    minutes = seconds // 60 + 2
    assert len(kept["at_ns"]) <= min(len(at), 2 * READINGS + 3 * minutes)


def test_what_changed_or_was_set_back_is_kept_with_what_it_was_before() -> None:
    at = reading(120, 4)
    sent = np.arange(len(at)) * 10
    sent[301:] -= 3000  # the driver was loaded anew
    up = [k not in range(101, 104) for k in range(len(at))]
    with Incident.empty() as incident:
        incident.append(
            "nics",
            {"node": "a", "nic": "n", "port": 1, "at_ns": at, "tx_bytes": sent, "link_up": up},
        )
        with digest(incident) as console:
            kept = {at_ns for (at_ns,) in console.con.execute("SELECT at_ns FROM nics").fetchall()}
    assert {int(at[k]) for k in (100, 101, 103, 104, 300, 301)} <= kept
    assert len(kept) < 60


def test_a_detail_is_finer_as_far_as_the_budget_goes() -> None:
    at = reading(600, 4)
    with Incident.empty() as incident:
        incident.append("nics", {"node": "a", "nic": "n", "port": 1, "at_ns": at, "tx_bytes": at})
        with digest(incident) as thin:
            assert thin.rows("nics") <= 200
        detail = Request("detail", job="j", tables=("nics",), budget_rows=400_000)
        with received(incident, detail) as all_of_it:
            assert all_of_it.rows("nics") == len(at)


def test_extremes_between_the_kept_readings_are_kept_too() -> None:
    at = reading(300, 1)
    pressure = np.full(len(at), 0.1)
    pressure[77] = 0.9
    with Incident.empty() as incident:
        incident.append("hosts", {"node": "a", "at_ns": at, "cpu_pressure": pressure})
        with digest(incident) as console:
            ((worst,),) = console.con.execute("SELECT max(cpu_pressure) FROM hosts").fetchall()
            assert console.rows("hosts") < 110
    assert worst == 0.9


def test_a_device_is_reported_whenever_it_was_found_and_only_as_it_is_now() -> None:
    with Incident.empty() as incident:
        incident.append(
            "devices",
            {
                "node": "a",
                "kind": "nic",
                "device": "n",
                "at_ns": [BEGAN_NS, BEGAN_NS + S],
                "firmware": ["1", "2"],
            },
        )
        with digest(incident, since_ns=BEGAN_NS + 900 * S) as console:
            rows = console.con.execute("SELECT device, firmware FROM devices").fetchall()
    assert rows == [("n", "2")]


@pytest.mark.parametrize("count", [10, 10_000])
def test_pings_keep_their_share_of_lost_ones(count: int) -> None:
    at = BEGAN_NS + np.arange(count) * S // 10
    with Incident.empty() as incident:
        columns = {"node": "a", "nic": "n", "target_node": "b", "kind": "network"}
        incident.append("pings", columns | {"at_ns": at, "lost": np.arange(count) % 10 == 0})
        with digest(incident) as console:
            ((kept, lost),) = console.con.execute(
                "SELECT count(*), avg(lost::INTEGER) FROM pings"
            ).fetchall()
    assert kept == count if count <= PINGS else count // 8 < kept <= PINGS * 5 // 4
    assert lost == pytest.approx(0.1, abs=0.03)


def test_of_a_flood_of_one_event_the_newest_are_reported_and_no_other_is_drowned() -> None:
    flood = BEGAN_NS + np.arange(5000) * S // 100
    with Incident.empty() as incident:
        incident.append(
            "host_events", {"node": "a", "source": "kernel", "code": "aer", "at_ns": flood}
        )
        incident.append(
            "host_events", {"node": "a", "source": "kernel", "code": "xid_79", "at_ns": [S]}
        )
        with digest(incident) as console:
            rows = console.con.execute(
                "SELECT code, count(*), max(at_ns) FROM host_events GROUP BY 1 ORDER BY 1"
            ).fetchall()
    assert rows == [("aer", EVENTS, int(flood[-1])), ("xid_79", 1, S)]


@given(st.integers(0, 10**15), st.integers(1, 10_000))
def test_stretches_nest_and_fit(span_ns: int, readings: int) -> None:
    stretch = stretch_ns(span_ns, readings)
    assert stretch % FINEST_NS == 0 and stretch * readings >= span_ns
    assert (stretch // FINEST_NS).bit_count() == 1
