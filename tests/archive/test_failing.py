"""Devices whose errors come far more often than the fleet's."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.archive.failing import LEAST, Fleet, failing
from oncall.archive.place import Folder
from oncall.archive.store import Archive
from oncall.evidence.incident import Incident
from oncall.render.text.failing import to_json, to_text

from ..command import oncall

FIRST_NS = 1_794_787_200 * 10**9  # 2026-11-16 00:00
HOUR_NS = 3600 * 10**9
DAYS = 4


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(Folder(tmp_path / "archive"))


def add(archive: Archive, errors: str, corrected: str = "0") -> Fleet:
    """Eight hosts of four GPUs, read every half hour: `errors` of NVLink and `corrected` ones of
    memory until then, in SQL of `node` (0..7), `gpu` and `hour`."""
    with Incident.empty() as incident:
        incident.con.execute(
            f"""INSERT INTO gpus (node, gpu, at_ns, nvlink_errors, ecc_corrected)
            SELECT 'gpu00' || node, gpu, {FIRST_NS} + (hour * {HOUR_NS})::BIGINT, {errors},
                {corrected}
            FROM range(8) n(node), range(4) g(gpu), range(0, {DAYS * 48}) h(half),
                LATERAL (SELECT half / 2 AS hour)"""
        )
        archive.add_hours(incident.con, "a3", "llama", FIRST_NS)
    found = failing(archive, DAYS * 24 * HOUR_NS)
    assert found is not None
    return found


def test_the_link_that_counts_errors_is_named(archive: Archive) -> None:
    found = add(
        archive, "CASE WHEN node = 3 AND gpu = 2 THEN (hour * hour / 20)::BIGINT ELSE 0 END"
    )
    (one,) = found.failing
    assert (one.node, one.device, one.counted) == ("gpu003", "2", "nvlink_errors")
    assert one.errors > 400 and one.fleet_median == 0 and one.fleet == 32 and one.trend == "rising"
    text = to_text(found)
    assert "4 d to 2026-11-20 00:00 UTC: 32 GPUs" in text
    assert "gpu003/gpu2" in text and "NVLink errors" in text
    assert max(map(len, text.splitlines())) <= 80
    assert '"counted": "nvlink_errors"' in to_json(found)


@pytest.mark.parametrize(
    "errors",
    [
        "(hour * 5)::BIGINT",  # all alike
        "(hour * (3 + (node * 4 + gpu) % 5))::BIGINT",  # some twice as many
        f"CASE WHEN node = 3 AND hour > 50 THEN {LEAST - 1} ELSE 0 END",  # hardly any
    ],
)
def test_what_the_fleet_has_as_well_is_not_named(archive: Archive, errors: str) -> None:
    found = add(archive, errors)
    assert found.failing == ()
    assert "No device counts errors far more often" in to_text(found)


def test_errors_that_became_fewer_are_falling(archive: Archive) -> None:
    found = add(archive, "0", "CASE WHEN node = 1 THEN least(hour, 20)::BIGINT ELSE 0 END")
    assert {(one.node, one.counted, one.trend) for one in found.failing} == {
        ("gpu001", "ecc_corrected", "falling")
    }
    assert len(found.failing) == 4


def test_the_command_and_an_archive_without_hours(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    done = oncall("history", "--failing", "--archive", tmp_path / "archive")
    assert (done.returncode, done.stdout.split(":")[0]) == (0, "No hours in the archive")
    done = oncall("history", "gpu017", "--failing", "--archive", tmp_path / "archive")
    assert done.returncode == 2 and "of the fleet" in done.stderr
