"""Whether two versions of oncall reach the same verdicts on the same evidence.

    python benchmarks/same_verdicts.py record OUT.json PATH... [--oncall PROGRAM] [--jobs N]
    python benchmarks/same_verdicts.py compare BEFORE.json AFTER.json

`record` diagnoses each PATH (a recording, a folder of dumps, an incident) with PROGRAM and keeps
what a machine reads: exit code, and each finding's verdict, severity, confidence, blame and cause.
`compare` prints every case that differs, and how many were equal; it exits 1 if any differs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

# What a verdict consists of; sentences may be reworded between versions.
FIELDS = ("verdict", "class", "severity", "confidence", "blame", "explained_by", "case")

app = typer.Typer(add_completion=False)


def diagnosed(program: str, path: Path) -> dict[str, Any]:
    """The verdict on one recording, without its sentences."""
    command = [program, "diagnose", str(path), "--format", "json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    found: dict[str, Any] = {"exit": answer.returncode, "findings": []}
    if answer.stdout:
        contract = json.loads(answer.stdout)
        found["healthy"] = contract.get("healthy")
        found["error"] = contract.get("error")
        found["findings"] = [
            {field: finding.get(field) for field in FIELDS}
            for finding in contract.get("findings", ())
        ]
    return found


@app.command()
def record(
    out: Path,
    paths: list[Path],
    oncall: Annotated[str, typer.Option(help="the version that diagnoses")] = "oncall",
    jobs: Annotated[int, typer.Option(help="how many at a time")] = 2,
) -> None:
    """Diagnose every PATH and keep the verdicts."""
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda path: diagnosed(oncall, path), paths))
    verdicts = {str(path): one for path, one in zip(paths, found, strict=True)}
    out.write_text(json.dumps(verdicts, indent=1, sort_keys=True))
    typer.echo(f"{len(verdicts)} cases")


@app.command()
def compare(before: Path, after: Path) -> None:
    """Print the cases that differ."""
    old, new = json.loads(before.read_text()), json.loads(after.read_text())
    shared = sorted(old.keys() & new.keys())
    differing = [case for case in shared if old[case] != new[case]]
    for case in differing:
        typer.echo(f"{case}\n  before {_brief(old[case])}\n  after  {_brief(new[case])}")
    typer.echo(f"{len(shared) - len(differing)} of {len(shared)} cases equal")
    sys.exit(bool(differing))


def _brief(verdict: dict[str, Any]) -> str:
    return json.dumps(
        [
            verdict["exit"],
            [(f["verdict"], f["confidence"], f["blame"]) for f in verdict["findings"]],
        ]
    )


if __name__ == "__main__":
    app()
