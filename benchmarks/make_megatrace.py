"""Logs as Megatrace writes them, of a simulated pipeline: one a rank, calls alone.

    python benchmarks/make_megatrace.py OUT [--ranks 128] [--iterations 40] [--no-group-hash]

`oncall diagnose OUT` reads them. The rank slowed is 2, from the middle of the recording on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from oncall.evidence.incident import Incident
from oncall_lab.pipeline import PipelineFault, PipelineScenario, simulate_pipeline

TENSOR, STAGES = 2, 4  # as in the recording that is shipped with Megatrace

_LINES = """
    SELECT format('[save_count 1] [{{}}.{{:09d}}] [Rank {{}}] Fun {{}} Data {{}} stream 0x{{:x}}',
            enqueued_ns // 1000000000, enqueued_ns % 1000000000, rank, op, count,
            94000000000000 + comm % 1000003 * 4096)
        || ' opCount ' || seq || {group_hash} AS line
    FROM ops WHERE rank = ? ORDER BY enqueued_ns, seq
"""
_GROUP_HASH = """' groupHash ' || CASE WHEN comm > 9223372036854775807::UBIGINT
    THEN (comm::HUGEINT - 18446744073709551616) ELSE comm::HUGEINT END"""


def write_logs(incident: Incident, folder: Path, *, group_hash: bool = True) -> int:
    """The calls of an incident as one log a rank; returns how many lines they have."""
    folder.mkdir(parents=True, exist_ok=True)
    query = _LINES.format(group_hash=_GROUP_HASH if group_hash else "''")
    lines = 0
    for (rank,) in incident.con.execute("SELECT DISTINCT rank FROM ops ORDER BY rank").fetchall():
        found = incident.con.execute(query, [rank]).fetchnumpy()["line"]
        (folder / f"rank_{rank}.log").write_text("\n".join(found) + "\n", encoding="ascii")
        lines += len(found)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--ranks", type=int, default=128)
    parser.add_argument("--iterations", type=int, default=40)
    parser.add_argument("--no-group-hash", action="store_true")
    asked = parser.parse_args()
    fault = PipelineFault("slow", 2, asked.iterations // 2, factor=2.0)
    scenario = PipelineScenario(
        recorder="calls", host_ahead=True, iterations=asked.iterations, tp=TENSOR, pp=STAGES,
        dp=asked.ranks // (TENSOR * STAGES), layers=24, faults=(fault,), configuration_stated=False,
    )  # fmt: skip
    incident, _ = simulate_pipeline(scenario)
    with incident:
        lines = write_logs(incident, asked.out, group_hash=not asked.no_group_hash)
    print(f"{lines:,} lines of {asked.ranks} ranks in {asked.out}")


if __name__ == "__main__":
    main()
