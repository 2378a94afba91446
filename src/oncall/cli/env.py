"""`oncall env`: what to set, in a launcher's syntax, so that the next incident leaves evidence."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import OncallError, UsageError

if TYPE_CHECKING:
    from oncall.fleet.evidence_settings import Setting

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Launcher(StrEnum):
    """The program that starts the job."""

    TORCHRUN = "torchrun"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    RAY = "ray"
    DEEPSPEED = "deepspeed"


def env(
    launcher: Annotated[Launcher, typer.Argument(help="The program that starts the job.")],
    job: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the job. Default: Slurm's number, else `train`."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(metavar="DIR", help="Shared folder for the evidence of all jobs.")
    ] = Path("/shared/evidence"),
    torch: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION", help="PyTorch of the job. Default: unknown, so both names are set."
        ),
    ] = None,
    nccl: Annotated[
        str | None, typer.Option(metavar="VERSION", help="NCCL of the job: decides on RAS.")
    ] = None,
    hooks: Annotated[
        bool, typer.Option("--hooks/--no-hooks", help="Also load the hooks of oncall.")
    ] = True,
) -> None:
    """Print what to set so that the next incident of a job leaves evidence.

    \b
    Examples:
      eval "$(oncall env torchrun --job llama)"; torchrun train.py
      oncall env slurm >> train.sbatch
      oncall env kubernetes --torch 2.9    # goes into the container's spec
      oncall env ray > env.yaml; ray job submit --runtime-env env.yaml ...
      oncall env deepspeed >> ~/.deepspeed_env

    Each setting has a comment: why, and since which version. Where the launcher's file takes no
    comments (.deepspeed_env), they go to standard error.
    """
    from oncall.fleet.evidence_settings import Versions, evidence_settings, ras_remark

    if job is not None and not _NAME.fullmatch(job):
        raise UsageError(f"--job {job!r}: use only letters, digits and . - _")
    name = job or ("slurm-${SLURM_JOB_ID}" if launcher is Launcher.SLURM else "train")
    place = f"{folder}/{name}"
    versions = Versions(_version("--torch", torch), _version("--nccl", nccl))
    settings = [*evidence_settings(place, name, versions), *(_hooks(name) if hooks else ())]
    remark = ras_remark(versions.nccl)
    write = {
        Launcher.TORCHRUN: _exports,
        Launcher.SLURM: _sbatch,
        Launcher.KUBERNETES: _kubernetes,
        Launcher.RAY: _ray,
        Launcher.DEEPSPEED: _deepspeed,
    }[launcher]
    sys.stdout.write("\n".join(write(settings, place, remark)) + "\n")


def _version(option: str, text: str | None) -> tuple[int, ...] | None:
    from oncall.fleet.evidence_settings import parse_version

    found = parse_version(text)
    if text is not None and found is None:
        raise UsageError(f"{option} {text!r} is not a version, such as 2.9.1")
    return found


def _hooks(job: str) -> Iterator[Setting]:
    """The hooks as settings; a note on standard error where they are not installed."""
    from oncall.fleet.evidence_settings import Setting
    from oncall.native import HOOKS
    from oncall.native.installed import library_for_launchers
    from oncall.node.store.places import run_dir

    try:
        library = str(library_for_launchers(HOOKS))
    except OncallError as error:
        print(f"oncall: without the hooks: {error}", file=sys.stderr)
        return
    yield Setting("ONCALL_JOB", job, "the name of the job in all of oncall's evidence")
    yield Setting("ONCALL_RUN_DIR", str(run_dir()), "where the hooks of each node record")
    yield Setting("NCCL_PROFILER_PLUGIN", library, "oncall's hooks in NCCL: channels and transfers")
    yield Setting("LD_PRELOAD", library, "oncall's hooks before NCCL: every call of every rank")


# ------------------------------------------------------------------- launchers


def _exports(settings: Sequence[Setting], place: str, remark: str) -> Iterator[str]:
    yield from _comment(remark)
    yield f"mkdir -p {_quoted(place)}"
    for one in settings:
        yield f"# {one.why}"
        kept = '"${LD_PRELOAD:+:$LD_PRELOAD}"' if one.name == "LD_PRELOAD" else ""
        yield f"export {one.name}={_quoted(one.value)}{kept}"


def _sbatch(settings: Sequence[Setting], place: str, remark: str) -> Iterator[str]:
    yield "# in the batch script, below its #SBATCH lines; srun hands the variables on"
    yield from _exports(settings, place, remark)


def _quoted(value: str) -> str:
    """For a shell; what names the job's number stays open to it."""
    return f'"{value}"' if "${SLURM_JOB_ID}" in value else shlex.quote(value)


def _kubernetes(settings: Sequence[Setting], place: str, remark: str) -> Iterator[str]:
    yield f"# mount a shared volume at {place}; the folder must exist"
    yield from _comment(remark)
    yield "env:"
    for one in settings:
        yield f"# {one.why}"
        yield f"- name: {one.name}"
        yield f"  value: {json.dumps(one.value)}"


def _ray(settings: Sequence[Setting], place: str, remark: str) -> Iterator[str]:
    yield f"# the folder {place} must exist on every node"
    yield from _comment(remark)
    yield "env_vars:"
    for one in settings:
        yield f"  # {one.why}"
        yield f"  {one.name}: {json.dumps(one.value)}"


def _deepspeed(settings: Sequence[Setting], place: str, remark: str) -> Iterator[str]:
    """DeepSpeed takes each line of the file apart at the first `=`: a comment would be an error."""
    for line in (f"the folder {place} must exist on every node", remark):
        if line:
            print(f"# {line}", file=sys.stderr)
    for one in settings:
        print(f"# {one.name}: {one.why}", file=sys.stderr)
        yield f"{one.name}={one.value}"


def _comment(remark: str) -> Iterator[str]:
    if remark:
        yield f"# {remark}"
