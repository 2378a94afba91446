"""Jobs with a stopped, a dead and a mismatched rank: dumps, RAS answers, stacks, and diagnoses.

    faults.py OUT --python TORCH_PYTHON --gpus N

The jobs are those of recordings_torch, over NCCL with a rank a GPU; with fewer than two GPUs over
gloo on CPUs, as NCCL refuses two ranks on one GPU.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import ranks
import record
import score
from cases import Case
from steps import arguments

from oncall.core.errors import OncallError
from oncall.importers.ras.client import fetch

LOOKS_S = (10, 70)  # after the fault: NCCL declares a peer dead after a minute
FAULTS = ("stopped", "killed", "other_op")


def recorded(case: Case, out: Path, python: Path, nccl: bool) -> None:
    """Run the job, break it, and keep what it left, RAS's answers among it."""
    out.mkdir(parents=True)
    ports = [ranks.free_port() for _ in range(case.world)]
    command = [str(python), *record.program(case, out), "--backend", "nccl" if nccl else "gloo"]
    with (out / "torchrun.log").open("ab") as log:
        job = ranks.start(command, record.settings(case), ports, log)
    try:
        record.wait_for(out / "struck0", job[0], case.patience_s)
        if not (out / "struck0").exists():
            raise RuntimeError((out / "torchrun.log").read_text(errors="replace")[-500:])
        record.strike(case, out, python)
        began = time.monotonic()
        for look_s in LOOKS_S if nccl else (case.after_s,):
            time.sleep(max(0.0, began + look_s - time.monotonic()))
            if nccl:
                (out / f"ras_{look_s}s").mkdir()
                (out / f"ras_{look_s}s" / "status.json").write_text(asked_ras(ports[0]))
        (out / "dump").touch()
        record.wait_for_dumps(case, out)
        with suppress(FileNotFoundError):  # there need be no py-spy
            record.take_stacks(case, out, python)
    finally:
        for one in job:
            record.stop(one, out)
    record.keep(case, out)


def asked_ras(port: int) -> str:
    """The answer of rank 0, which is never the culprit; or why there is none."""
    try:
        return fetch("localhost", port)
    except OncallError as error:
        return f"{error}\n"


def row(case: Case, place: Path) -> tuple[dict[str, Any], str]:
    """What each kind of evidence is diagnosed as, beside the truth."""
    judged: dict[str, tuple[str, str]] = {}
    kinds = {path.name: [path] for path in sorted(place.iterdir()) if path.is_dir()}
    for kind, paths in (
        kinds | {"together": [path for each in kinds.values() for path in each]}
    ).items():
        readable = [path for path in paths if score.holds_evidence(path)]
        if readable:
            judged[kind] = score.judged(case.truth, score.diagnosed(readable))
    cells = "; ".join(f"{kind}: **{word}** ({said})" for kind, (word, said) in judged.items())
    truth = f"{case.fault}, rank {case.ranks[0]} of {case.world}"
    return {"truth": case.truth, "judged": judged}, f"| {truth} | {cells} |"


def main() -> None:
    asked = arguments()
    nccl = asked.gpus > 1
    world = asked.gpus if nccl else 4
    cases = [Case("ddp", fault, (world - 1,), world=world, buffer=2000) for fault in FAULTS]
    over = f"NCCL, {world} GPUs" if nccl else "STAND-IN: gloo on CPUs, Flight Recorder only"
    lines = [f"{over}.", "", "| truth | evidence: answer of `oncall diagnose` |", "|---|---|"]
    if asked.gpus == 1:
        lines[:0] = ["One GPU: NCCL refuses two ranks on one, so NCCL's own dumps need two.", ""]
    figures = {}
    # Side by side on GPUs, where a dead peer takes RAS a minute; in turn on a few CPU cores.
    with ThreadPoolExecutor(len(cases) if nccl else 1) as pool:
        running = [
            pool.submit(recorded, case, asked.out / case.fault, asked.python, nccl)
            for case in cases
        ]
        for case, one in zip(cases, running, strict=True):
            try:
                one.result()
                figures[case.fault], line = row(case, asked.out / case.fault)
            except Exception as error:  # the other faults are still of use
                line = f"| {case.fault} | failed: {type(error).__name__}: {error} |"
            lines.append(line.replace("\n", " "))
            (asked.out / "section.md").write_text("\n".join(lines) + "\n")
            (asked.out / "figures.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
