"""Switch tables in CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers.detect import load


def test_csv_and_parquet_are_read_by_their_names(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "switch_ports-leaf3.csv").write_text(
        "switch,port,at_ns,queue_depth,colour\nleaf3,7,1000,12.5,red\nleaf3,,1000,1,blue\n"
    )
    duckdb.execute(
        "COPY (SELECT 'leaf3' AS switch, 7 AS port, 5 AS at_ns, true AS paused) TO "
        f"'{tmp_path}/switch_pauses.parquet'"
    )
    load([tmp_path], incident)
    assert incident.con.execute(
        "SELECT switch, port, at_ns, queue_depth, packets FROM switch_ports"
    ).fetchall() == [("leaf3", 7, 1000, 12.5, None)]
    assert incident.rows("switch_pauses") == 1
    stored = incident.con.execute(
        "SELECT problem, note FROM recordings WHERE problem IS NOT NULL"
    ).fetchall()
    assert stored == [
        ("1 of 2 rows lack a value they need", "columns of switch_ports not known: colour")
    ]


@pytest.mark.parametrize(
    ("written", "comm"), [("0x1F2e", 0x1F2E), ("17", 17), ("0xffffffffffffffff", 2**64 - 1)]
)
def test_a_communicator_is_written_in_either_base(
    tmp_path: Path, incident: Incident, written: str, comm: int
) -> None:
    (tmp_path / "flow_steps.csv").write_text(
        f"comm,flow,src,dst,step,started_ns,ended_ns\n{written},1,0,1,1,0,5\n"
    )
    load([tmp_path], incident)
    assert incident.con.execute("SELECT comm, seq FROM flow_steps").fetchall() == [(comm, 0)]


def test_a_table_without_what_it_needs_says_what(tmp_path: Path, incident: Incident) -> None:
    (tmp_path / "switch_pauses.csv").write_text("switch,port\nleaf3,1\n")
    with pytest.raises(BadInput, match="switch_pauses needs the column at_ns, paused"):
        load([tmp_path], incident)


@pytest.mark.parametrize("content", [b"PAR1 and then nothing", b"PAR1"])
def test_a_damaged_file_says_so(tmp_path: Path, incident: Incident, content: bytes) -> None:
    (tmp_path / "switch_ports.parquet").write_bytes(content)
    with pytest.raises(BadInput, match=r"switch_ports\.parquet"):
        load([tmp_path], incident)
