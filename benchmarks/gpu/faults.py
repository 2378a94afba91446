"""Jobs with a stopped, a dead and a mismatched rank: dumps, RAS answers, stacks, and diagnoses.

The jobs are those of recordings_torch, over NCCL with a rank a GPU; with fewer than two GPUs over
gloo on CPUs, as NCCL refuses two ranks on one GPU.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from subprocess import STDOUT

import ranks
import record
import score
from cases import Case
from steps import arguments

from oncall.core.errors import OncallError
from oncall.importers.ras.client import fetch

LOOKS_S = (10, 70)  # after the fault: NCCL declares a peer dead after a minute


def recorded(case: Case, asked: Namespace) -> None:
    """Run the job, break it, and keep what it left."""
    out, nccl = asked.out / case.fault, asked.gpus > 1
    out.mkdir()
    ports = [ranks.free_port() for _ in range(case.world)]
    command = [str(asked.python), *record.program(case, out)]
    command += ["--backend", "nccl" if nccl else "gloo"]
    with (out / "torchrun.log").open("ab") as log:
        job = ranks.start(command, record.settings(case), ports, stdout=log, stderr=STDOUT)
    try:
        record.wait_for(out / "struck0", job[0], case.patience_s)
        record.strike(case, out, asked.python)
        struck = time.monotonic()
        for look_s in LOOKS_S if nccl else LOOKS_S[:1]:
            time.sleep(max(0.0, struck + look_s - time.monotonic()))
            if nccl:
                ask_ras(ports[0], out, f"ras_{look_s}s")
        (out / "dump").touch()
        record.wait_for_dumps(case, out)
        with suppress(FileNotFoundError):  # there need be no py-spy
            record.take_stacks(case, out, asked.python)
    finally:
        for one in job:
            record.stop(one, out)
    record.keep(case, out)


def ask_ras(port: int, out: Path, look: str) -> None:
    """The answer of rank 0, which is never the culprit, in a folder; else why not, in a file."""
    try:
        answer = fetch("localhost", port)
    except OncallError as error:
        (out / f"{look}.txt").write_text(f"{error}\n")
    else:
        (out / look).mkdir()
        (out / look / "status.json").write_text(answer)


def row(case: Case, place: Path) -> str:
    """What each kind of evidence is diagnosed as, beside the truth."""
    kinds = [path for path in sorted(place.iterdir()) if score.holds_evidence(path)]
    looks = {path.name: [path] for path in kinds} | {"together": kinds}
    judged = {on: score.judged(case.truth, score.diagnosed(of)) for on, of in looks.items()}
    (place / "judged.json").write_text(json.dumps(judged, indent=1) + "\n")
    cells = "; ".join(f"{on}: **{word}** ({said})" for on, (word, said) in judged.items())
    return f"| {case.fault}, rank {case.ranks[0]} of {case.world} | {cells} |"


def main() -> None:
    asked = arguments()
    nccl = asked.gpus > 1
    world = asked.gpus if nccl else 4
    faults = ("stopped", "killed", "other_op")
    cases = [Case("ddp", fault, (world - 1,), world=world, buffer=2000) for fault in faults]
    over = f"NCCL, {world} GPUs" if nccl else "STAND-IN: gloo on CPUs, no RAS; NCCL needs two GPUs"
    lines = [f"{over}.", "", "| truth | evidence: answer of `oncall diagnose` |", "|---|---|"]
    # Side by side on GPUs, where a dead peer takes RAS a minute; in turn on a few CPU cores.
    with ThreadPoolExecutor(len(cases) if nccl else 1) as pool:
        for case, job in [(case, pool.submit(recorded, case, asked)) for case in cases]:
            try:
                job.result()
                line = row(case, asked.out / case.fault)
            except Exception as error:  # the other faults are still of use
                line = f"| {case.fault} | failed, see its log: {error!r} |"
            lines.append(line.replace("\n", " "))
            (asked.out / "section.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
