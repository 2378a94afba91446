"""`oncall simulate`: two files and one line."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import pytest

from oncall.cli.simulate import simulate
from oncall.evidence.incident import Incident
from oncall.node.store.catalog import sealed_shards

SCENARIO = """\
tp: 2
pp: 1
duration: 20 s
faults:
  - {fault: H1, rank: 5, at: 10 s}
"""


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "stop.yaml"
    path.write_text(SCENARIO, encoding="utf-8")
    return path


def test_evidence_and_truth_are_written_apart(
    scenario: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    simulate(scenario, out)
    printed = capsys.readouterr()
    assert printed.err == "" and printed.out.count("\n") == 1
    assert "8 ranks" in printed.out and "H1" in printed.out
    assert sorted(path.name for path in out.iterdir()) == ["evidence.oncall", "truth.json"]
    truth = json.loads((out / "truth.json").read_text(encoding="utf-8"))
    assert truth["healthy"] is False
    assert truth["faults"][0]["kind"] == "H1" and truth["faults"][0]["ranks"] == [5]
    with Incident.open(out / "evidence.oncall") as incident:
        assert incident.rows("ops") > 100


def test_the_seed_can_be_given(scenario: Path, tmp_path: Path) -> None:
    def ops(folder: str, seed: int | None) -> list[tuple[object, ...]]:
        simulate(scenario, tmp_path / folder, seed)
        with Incident.open(tmp_path / folder / "evidence.oncall") as incident:
            return incident.con.execute("FROM ops ORDER BY ALL").fetchall()

    assert ops("a", 3) == ops("b", 3) != ops("c", None)


def test_a_data_folder_a_node_as_collectors_write_them(tmp_path: Path) -> None:
    path = tmp_path / "live.yaml"
    path.write_text(
        SCENARIO.replace("pp: 1", "pp: 2") + "recorder: hooks\ngpus_per_node: 8\n", encoding="utf-8"
    )
    simulate(path, tmp_path / "whole")
    simulate(path, tmp_path / "nodes", shards=True)
    assert sorted(item.name for item in (tmp_path / "nodes").iterdir()) == [
        "gpu001",
        "gpu002",
        "truth.json",
    ]
    with Incident.open(tmp_path / "whole" / "evidence.oncall") as incident:
        columns = "comm, kind, seq, rank, op, pair_seq, enqueued_ns, ended_ns, observed_ns"
        rows = incident.con.execute(f"SELECT {columns} FROM ops").fetchall()
        assert rows
        for node in ("gpu001", "gpu002"):
            shards = sealed_shards(tmp_path / "nodes" / node)
            assert len(shards) > 1 and {shard.node for shard in shards} == {node}
            for shard in shards:
                with duckdb.connect(shard.path, read_only=True) as con:
                    for row in con.execute(f"SELECT {columns} FROM ops").fetchall():
                        rows.remove(row)
                    assert con.execute("SELECT node FROM meta").fetchall() == [(node,)]
                    named = (
                        "FROM ops WHERE peer IS NOT NULL OR (kind = 'p2p' AND comm_peer IS NULL)"
                    )
                    assert con.execute(named).fetchall() == []
    assert rows == []


def test_traffic_is_written_as_each_node_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "traffic.yaml"
    path.write_text(
        "workload: neighbour_exchange\niterations: 3\n"
        "faults: [{fault: congestion, rank: 2, iteration: 1}]\n",
        encoding="utf-8",
    )
    simulate(path, tmp_path / "nodes", shards=True)
    simulate(path, tmp_path / "whole")
    truth = json.loads((tmp_path / "nodes" / "truth.json").read_text(encoding="utf-8"))
    assert truth["faults"][0]["blame"] == [{"node": "gpu003", "rank": 2, "nic": "mlx5_0"}]
    rows = 0
    for node in sorted((tmp_path / "nodes").glob("gpu*")):
        (shard,) = sealed_shards(node)
        with duckdb.connect(str(shard.path), read_only=True) as con:
            epochs = con.execute("SELECT node, count(*) FROM epochs GROUP BY node").fetchall()
            # Two neighbours, each of which it sends to and hears from.
            assert con.execute("SELECT count(*) FROM qps").fetchall() == [(4,)]
        assert [name for name, _ in epochs] == [node.name]
        rows += epochs[0][1]
    with Incident.open(tmp_path / "whole" / "evidence.oncall") as incident:
        assert incident.rows("epochs") == rows
