"""`oncall env`: what to set, in a launcher's syntax, so that the next incident leaves evidence."""

from __future__ import annotations

import json
import os
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
    from oncall.fleet.checkup.evidence_settings import Setting

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_NUMBER, _USER = "${SLURM_JOB_ID}", "$(id -u)"  # for the shell to fill in
_OPEN = re.compile(f"({re.escape(_NUMBER)}|{re.escape(_USER)})")


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
    """Print what to set so that the next incident leaves evidence.

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
    from oncall.fleet.checkup.evidence_settings import PIPE, Versions, evidence_settings, ras_remark

    if job is not None and not _NAME.fullmatch(job):
        raise UsageError(f"--job {job!r}: use only letters, digits and . - _")
    if not str(folder).isprintable():
        raise UsageError(f"--folder {str(folder)!r}: control characters are not allowed")
    name = job or (f"slurm-{_NUMBER}" if launcher is Launcher.SLURM else "train")
    place = f"{folder}/{name}"
    versions = Versions(_version("--torch", torch), _version("--nccl", nccl))
    pipe = _pipe(launcher, job)
    settings = [*evidence_settings(place, pipe, versions), *(_hooks(name) if hooks else ())]
    remarks = [ras_remark(versions.nccl)] if ras_remark(versions.nccl) else []
    if pipe is None:
        remarks.append(f"{PIPE}: not set, as jobs of one name would delete each other's; see --job")
    write = {
        Launcher.TORCHRUN: _exports,
        Launcher.SLURM: _sbatch,
        Launcher.KUBERNETES: _kubernetes,
        Launcher.RAY: _ray,
        Launcher.DEEPSPEED: _deepspeed,
    }[launcher]
    sys.stdout.write("\n".join(write(settings, place, remarks)) + "\n")


def _pipe(launcher: Launcher, job: str | None) -> str | None:
    """How the pipes of this user's job begin; None if nothing tells it from another job."""
    if launcher is Launcher.SLURM:
        return f"/tmp/fr_{_USER}_{_NUMBER}_rank_"
    if job is None:
        return None
    user = _USER if launcher is Launcher.TORCHRUN else os.getuid()
    return f"/tmp/fr_{user}_{job}_rank_"


def _version(option: str, text: str | None) -> tuple[int, ...] | None:
    from oncall.fleet.checkup.evidence_settings import parse_version

    found = parse_version(text)
    if text is not None and found is None:
        raise UsageError(f"{option} {text!r} is not a version, such as 2.9.1")
    return found


def _hooks(job: str) -> Iterator[Setting]:
    """The hooks as settings; a note on standard error where they are not installed."""
    from oncall.fleet.checkup.evidence_settings import Setting
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


def _exports(settings: Sequence[Setting], place: str, remarks: Sequence[str]) -> Iterator[str]:
    yield from _comments(remarks)
    yield f"mkdir -p {_quoted(place)}"
    for one in settings:
        yield f"# {one.why}"
        kept = '"${LD_PRELOAD:+:$LD_PRELOAD}"' if one.name == "LD_PRELOAD" else ""
        yield f"export {one.name}={_quoted(one.value)}{kept}"


def _sbatch(settings: Sequence[Setting], place: str, remarks: Sequence[str]) -> Iterator[str]:
    yield "# in the batch script, below its #SBATCH lines; srun hands the variables on"
    yield from _exports(settings, place, remarks)


def _quoted(value: str) -> str:
    """For a shell; only the job's number and the user's stay open to it."""
    parts = _OPEN.split(value)
    return "".join(
        f'"{part}"' if _OPEN.fullmatch(part) else shlex.quote(part) for part in parts if part
    )


def _kubernetes(settings: Sequence[Setting], place: str, remarks: Sequence[str]) -> Iterator[str]:
    yield f"# mount a shared volume at {place}; the folder must exist"
    yield from _comments(remarks)
    yield "env:"
    for one in settings:
        yield f"# {one.why}"
        yield f"- name: {one.name}"
        # Kubernetes fills in $(NAME); $$ is a plain $.
        yield f"  value: {_yaml(one.value.replace('$', '$$'))}"


def _ray(settings: Sequence[Setting], place: str, remarks: Sequence[str]) -> Iterator[str]:
    yield f"# the folder {place} must exist on every node"
    yield from _comments(remarks)
    yield "env_vars:"
    for one in settings:
        yield f"  # {one.why}"
        yield f"  {one.name}: {_yaml(one.value)}"


def _yaml(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _deepspeed(settings: Sequence[Setting], place: str, remarks: Sequence[str]) -> Iterator[str]:
    """DeepSpeed takes each line of the file apart at the first `=`: a comment would be an error.
    Some versions quote the values for the nodes' shells and some do not."""
    for one in settings:
        if shlex.quote(one.value) != one.value:
            raise UsageError(f"{one.name}={one.value!r}: DeepSpeed may not pass it on as it stands")
    for line in (f"the folder {place} must exist on every node", *remarks):
        print(f"# {line}", file=sys.stderr)
    for one in settings:
        print(f"# {one.name}: {one.why}", file=sys.stderr)
        yield f"{one.name}={one.value}"


def _comments(remarks: Sequence[str]) -> Iterator[str]:
    return (f"# {remark}" for remark in remarks)
