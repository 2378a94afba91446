"""What oncall costs and sees on 1 to 8 NVIDIA GPUs: every step, its limit, and one report.

Ten minutes at most, not counting the environment that the first run makes. Without a GPU, or with
`--dry`, each step says what it would do, and does over gloo or the stand-in for NCCL what can be
done: labelled, and never a figure of a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ENVIRONMENT = Path.home() / ".cache" / "oncall-gpu"
ENVIRONMENT_S = 1200
# The scripts, in turn: seconds that each may take, what it does on GPUs, and what without.
STEPS = {
    "overhead": (
        300,
        "a transformer under DDP in bf16, and a loop of all-reduces, over NCCL without and with "
        "hooks and profiler plugin: 30 alternating pairs, their ratio with its interval",
        "two pairs over gloo, which has nothing to hook, and the hooks in the stand-in for NCCL",
    ),
    "faults": (
        180,
        "jobs over NCCL with a stopped, a dead and a mismatched rank: Flight Recorder, RAS and "
        "stacks, each diagnosed and compared with the truth; with one GPU over gloo",
        "the same jobs over gloo on CPUs: Flight Recorder and stacks; no RAS",
    ),
    "readings": (
        90,
        "20 s idle and 20 s busy: what the collector's source of GPUs reads, beside nvidia-smi",
        "the source of GPUs is asked once, and says why it reads none",
    ),
}
DRY_FACTOR = 3  # without GPUs: a few cores, perhaps shared, take longer to start the jobs
FACTS = """
import json, torch
said = {"torch": torch.__version__, "CUDA": torch.version.cuda}
if torch.cuda.is_available():
    said["NCCL"] = torch.cuda.nccl.version()
    said["GPUs"] = [torch.cuda.get_device_name(at) for at in range(torch.cuda.device_count())]
print(json.dumps(said))
"""


def arguments() -> argparse.Namespace:
    """What `run_step` calls a step's script with."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--seconds", type=int)
    return parser.parse_args()


def plan(dry: bool) -> str:
    """Every step, numbered."""
    here = "; WITHOUT GPU: " if dry else ""
    lines = [f"environment (at most {ENVIRONMENT_S} s): torch with its NCCL in {ENVIRONMENT}"]
    lines[0] += f", unless --python names one{here}{'nothing is installed' if dry else ''}"
    for name, (limit_s, does, without) in STEPS.items():
        lines.append(f"{name} (at most {limit_s} s): {does}{here}{without if dry else ''}")
    return "\n".join(f"{at}. {line}" for at, line in enumerate(lines, 1))


def revision() -> str:
    """Of oncall, where it lies in a checkout."""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", ROOT, "describe", "--always", "--dirty"]
        return subprocess.check_output(command, text=True, stderr=subprocess.DEVNULL).strip()
    return "not known"


def environment(wheels: Path | None) -> Path:
    """A Python with torch, and oncall if this one has none; made anew if the list has changed."""
    wanted, made = HERE / "requirements.txt", ENVIRONMENT / "made-of.txt"
    python = ENVIRONMENT / "bin" / "python"
    offline = ["--no-index", "--find-links", str(wheels.absolute())] if wheels else []
    ours = [] if find_spec("oncall") else ["oncall-console" if wheels else str(ROOT)]
    stamp = "\n".join([wanted.read_text(), *ours])
    if not made.exists() or made.read_text() != stamp:
        pip = [python, "-m", "pip", "install", *offline, "-r", wanted, *ours]
        for command in ([sys.executable, "-m", "venv", ENVIRONMENT], pip):
            subprocess.run(command, check=True, timeout=ENVIRONMENT_S)
        made.write_text(stamp)
    return python


def run_step(step: str, out: Path, python: Path, gpus: int) -> str:
    """Run a step's script in a session of its own; why it did not end well, if it did not."""
    limit_s = STEPS[step][0] * (1 if gpus else DRY_FACTOR)
    ours = sys.executable if find_spec("oncall") else python  # torch's Python need not have oncall
    command = [ours, HERE / f"{step}.py", out / step, "--python", python]
    command += ["--gpus", str(gpus), "--seconds", str(limit_s)]
    paths = f"{HERE.parent}{os.pathsep}{HERE.parent / 'recordings_torch'}"
    (out / step).mkdir()
    with (out / step / "log").open("wb") as log:
        running = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
    try:
        status = running.wait(limit_s)
        return f"ended with status {status}, see {step}/log" if status else ""
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)  # it removes its rings from memory
        with suppress(subprocess.TimeoutExpired):
            running.wait(10)
        return f"stopped after {limit_s} s; what it had written by then is kept"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)  # its ranks too, a stopped one among them
        running.wait()


def report(out: Path, facts: dict[str, Any], gpus: int, ended: dict[str, str]) -> None:
    """Written after each step: a later one cannot lose it."""
    lines = ["# oncall on GPUs" if gpus else "# DRY RUN: no figure here is of a GPU", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    for step in STEPS:
        section = out / step / "section.md"
        lines += ["", f"## {step}", ""]
        lines += [f"**{how}**", ""] if (how := ended.get(step, "not run")) else []
        lines += [section.read_text().strip()] if section.exists() else []
    (out / "report.md").write_text("\n".join(lines) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="a new folder for all outputs")
    parser.add_argument("--dry", action="store_true", help="use no GPU, even if there is one")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and end")
    parser.add_argument("--python", type=Path, help="a Python with torch, instead of a new one")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels: nothing is downloaded")
    parser.add_argument("--only", choices=STEPS, nargs="+", default=list(STEPS))
    asked = parser.parse_args()
    asked.out = asked.out.absolute()
    smi = ""
    with suppress(OSError, subprocess.SubprocessError):
        smi = subprocess.check_output(["nvidia-smi"], text=True, timeout=60)
    dry = asked.dry or not smi
    print(plan(dry), flush=True)
    if asked.plan:
        return 0
    if asked.out.exists():
        parser.error(f"{asked.out} exists: name a new folder")
    asked.out.mkdir(parents=True)
    (asked.out / "nvidia_smi.txt").write_text(smi)
    cores = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start"
    facts: dict[str, Any] = {"machine": f"{cores}, {platform.platform()}"}
    driver = [line.strip("| ") for line in smi.splitlines() if "Driver Version" in line]
    facts |= {"driver": " ".join(driver) or "none", "checkout": revision()}
    python = asked.python.absolute() if asked.python else None
    try:
        python = python or (None if dry else environment(asked.wheels))
        if python:
            facts |= json.loads(subprocess.check_output([python, "-c", FACTS], timeout=300))
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        facts["torch"], python = f"cannot be used: {error}", None
    gpus = 0 if dry else min(8, len(facts.get("GPUs", ())))
    facts.setdefault("GPUs", "none that torch can use")
    ended: dict[str, str] = {}
    for step in asked.only:
        began = time.monotonic()
        if python or (dry and step == "readings"):
            ended[step] = run_step(step, asked.out, python or Path(sys.executable), gpus)
        else:
            ended[step] = "not run: no torch; name a Python that has it with --python"
        print(f"{step}: {time.monotonic() - began:.0f} s {ended[step]}", flush=True)
        report(asked.out, facts, gpus, ended)
    print(f"see {asked.out / 'report.md'}")
    return int(any(ended.values()))


if __name__ == "__main__":
    sys.exit(main())
