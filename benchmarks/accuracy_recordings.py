"""Recordings with known truth, diagnosed as their user would, beside what `torchfrtrace` says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from accuracy_jobs import CLASSES

# Where the recordings lie under the given folder, and what is true of them.
RECORDINGS = (
    ("flight_recorder/healthy/pickle", None, ()),
    ("flight_recorder/healthy/json", None, ()),
    ("flight_recorder/h1_not_entered/pickle", "H1", (2,)),
    ("flight_recorder/h1_not_entered/json", "H1", (2,)),
    ("flight_recorder/h2_wrong_op/pickle", "H2", (1,)),
    ("flight_recorder/h2_wrong_op/json", "H2", (1,)),
    ("nvrx/gpu_error_2nd", "H1", (9, 14)),
    ("megatrace/log_rank2_slow.tar.xz", "S1", (2,)),
)


def recordings(folder: Path, torch_python: str | None) -> None:
    """Diagnose each recording as its user would, beside torchfrtrace's answer."""
    print("| recording | truth | oncall | right | torchfrtrace |\n|---|---|---|---|---|")
    for name, kind, ranks in RECORDINGS:
        path = folder / name
        if not path.exists():
            print(f"| {name} | | not here | | |")
            continue
        with tempfile.TemporaryDirectory() as room:
            place = _unpacked(path, Path(room))
            answer = subprocess.run(
                [
                    sys.executable,
                    "-m",
                    "oncall.cli.main",
                    "diagnose",
                    str(place),
                    "--format",
                    "json",
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            other = _torchfrtrace(place, torch_python)
        findings = json.loads(answer.stdout)["findings"] if answer.stdout else []
        roots = [f for f in findings if f["explained_by"] is None]
        got = [(f["verdict"], tuple(b.get("rank") for b in f["blame"])) for f in roots]
        right = [(CLASSES.get(v, v), r) for v, r in got] == ([(kind, ranks)] if kind else [])
        truth = f"{kind} {list(ranks)}" if kind else "healthy"
        said = "; ".join(f"{v} {list(r)}" for v, r in got) or "no finding"
        print(f"| {name} | {truth} | {said} | {'yes' if right else 'NO'} | {other} |")


def _unpacked(path: Path, room: Path) -> Path:
    if path.suffix != ".xz":
        return path
    with tarfile.open(path) as archive:
        archive.extractall(room, filter="data")
    return next(item for item in room.iterdir() if item.is_dir())


def _torchfrtrace(folder: Path, python: str | None) -> str:
    """What PyTorch's analyzer says of the same files, in a few words."""
    names = sorted(item.name for item in folder.iterdir())
    prefix = re.sub(r"\d+(\.json)?$", "", names[0])
    if python is None or "megatrace" in str(folder) or names[0].endswith((".json", ".log")):
        return "" if python is None else "cannot read it"
    answer = subprocess.run(
        [python, "-m", "torch.distributed.flight_recorder.fr_trace", str(folder), "-p", prefix],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TORCHDYNAMO_DISABLE": "1"},
    )
    if answer.returncode:
        return "fails: " + answer.stderr.strip().splitlines()[-1][:60].replace("|", "/")
    said = re.findall(
        r"missing ranks: (\{[^}]*\})|Culprit rank ([\d, ]+)", answer.stdout + answer.stderr
    )
    return "; ".join("missing " + a if a else "culprit " + b for a, b in said) or "silent"
