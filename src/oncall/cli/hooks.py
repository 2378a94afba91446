"""`oncall hooks`: what a launcher needs to record a job, and what is being recorded here."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import BadInput, UsageError
from oncall.native import Architecture

if TYPE_CHECKING:
    from oncall.node.rings.ring import RingReader

app = typer.Typer(
    help="Record a job: the environment of its launcher, and the rings on this node.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_SEPARATORS = " ,\t\n"  # of srun --export, which cannot quote them; LD_PRELOAD splits at : too
_NO_PLUGIN = ("", "none", "static_plugin")  # what NCCL_PROFILER_PLUGIN may be that names no library
_COLUMNS = ("rank", "job", "pid", "state", "records", "unread", "dropped", "ring")

_Architecture = Annotated[
    Architecture | None,
    typer.Option("--architecture", help="Of the nodes, where they are not as this machine is."),
]
_RunDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Where rings lie: $ONCALL_RUN_DIR, else /run/oncall."),
]


class Launcher(StrEnum):
    """What starts the job."""

    SHELL = "shell"
    TORCHRUN = "torchrun"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@app.command()
def env(
    launcher: Annotated[
        Launcher, typer.Argument(help="What starts the job; torchrun inherits the shell's.")
    ] = Launcher.SHELL,
    job: Annotated[
        str | None, typer.Option(help="The job's name; else Slurm's or torchrun's own is taken.")
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Its parallelism: 'tp=2 pp=2 dp=2 micro_batches=8'."),
    ] = None,
    verbs: Annotated[
        bool, typer.Option("--verbs", help="Also see what is posted to RDMA NICs.")
    ] = False,
    chain: Annotated[
        str | None,
        typer.Option(
            "--chain-profiler",
            metavar="PLUGIN",
            help="Another profiler plugin of NCCL's that stays loaded, behind ours: a path or a "
            "name. Else the one that $NCCL_PROFILER_PLUGIN names now.",
        ),
    ] = None,
    run_dir: _RunDir = None,
) -> None:
    """Print the environment that makes a job record itself.

    eval "$(oncall hooks env)"; torchrun train.py

    srun $(oncall hooks env slurm) python train.py

    oncall hooks env kubernetes     a fragment of the pod's specification
    """
    from oncall.native import HOOKS, VERBS
    from oncall.native.installed import library_for_launchers
    from oncall.node.store import places

    library = str(library_for_launchers(HOOKS))
    preloaded = [library, *([str(library_for_launchers(VERBS))] if verbs else [])]
    _say_if_older()
    for path in preloaded:
        _check_writable_as_list(path)
    variables = {"ONCALL_RUN_DIR": str((run_dir or places.run_dir()).absolute())}
    if job:
        variables["ONCALL_JOB"] = job
    if config:
        variables["ONCALL_JOB_CONFIG"] = config
    if other := chain or _plugin_in_place(os.environ, library):
        variables["ONCALL_CHAIN_PROFILER"] = other
    variables |= {"NCCL_PROFILER_PLUGIN": library, "LD_PRELOAD": ":".join(preloaded)}
    write = {Launcher.SLURM: _for_srun, Launcher.KUBERNETES: _for_kubernetes}
    print(write.get(launcher, _for_shell)(variables))
    if sys.stdout.isatty():
        print(_HINTS[launcher], file=sys.stderr)


@app.command()
def path(
    architecture: _Architecture = None,
    verbs: Annotated[
        bool, typer.Option("--verbs", help="The library that sees what is posted to RDMA NICs.")
    ] = False,
) -> None:
    """Print the path of the library that a launcher preloads.

    It is the stable one below $ONCALL_HOOKS_DIR, else /opt/oncall/hooks, where `oncall hooks
    install` has put the hooks there; else the one in this Python package.
    """
    from oncall.native import HOOKS, VERBS
    from oncall.native.installed import library_for_launchers

    print(library_for_launchers(VERBS if verbs else HOOKS, architecture))
    _say_if_older()


@app.command()
def install(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Made if it is not there; containers mount it.")
    ],
    architecture: _Architecture = None,
) -> None:
    """Copy the hooks to a path that stays the same when oncall is upgraded.

    DIR/liboncall_hooks.so is what launchers name. Each version has a folder of its own below
    DIR/versions and is switched to in one step, so running jobs keep the one that they have loaded,
    and jobs that start meanwhile get the one or the other. Both architectures are copied:
    DIR/current/aarch64 is for nodes of aarch64 where this machine is none.
    """
    from oncall.native import HOOKS
    from oncall.native.installed import default_folder, install

    _check_writable_as_list(str(folder.absolute()))
    installed = install(folder, architecture)
    print(installed.library(HOOKS))
    if installed.folder != default_folder():
        line = f"export ONCALL_HOOKS_DIR={shlex.quote(str(installed.folder))}"
        print(f"oncall: for `oncall hooks env` to name it: {line}", file=sys.stderr)
    for other in installed.others:
        print(
            f"oncall: kept, for jobs that have it loaded: {other.name}; when no job runs that "
            f"started before now: rm -r {shlex.quote(str(other))}",
            file=sys.stderr,
        )


def _say_if_older() -> None:
    """Launchers are given what is installed, also after this package was upgraded."""
    from oncall.native.installed import installation, version_here

    found = installation()
    if found is not None and found.version != version_here():
        print(
            f"oncall: {found.folder} has the hooks of {found.version}, this oncall brings "
            f"{version_here()}: oncall hooks install {shlex.quote(str(found.folder))}",
            file=sys.stderr,
        )


_HINTS = {
    Launcher.SHELL: '# to take it over: eval "$(oncall hooks env)"',
    Launcher.TORCHRUN: '# before torchrun: eval "$(oncall hooks env torchrun)"',
    Launcher.SLURM: "# as options of srun: srun $(oncall hooks env slurm) python train.py",
    Launcher.KUBERNETES: "# merge it into the pod: docs/guide/hooks.md",
}


def _plugin_in_place(environment: Mapping[str, str], library: str) -> str | None:
    """The profiler plugin that NCCL would load without us, if somebody has named one: NCCL has one
    place for it, and ours takes it."""
    named = environment.get("NCCL_PROFILER_PLUGIN", "")
    if named == library:
        return environment.get("ONCALL_CHAIN_PROFILER")
    return None if named.lower() in _NO_PLUGIN else named


def _check_writable_as_list(path: str) -> None:
    if any(separator in path for separator in _SEPARATORS + ":"):
        raise UsageError(
            f"{path!r} cannot be preloaded: the loader splits such a path; "
            "install oncall, or copy the library, where the path has no space, colon or comma"
        )


def _for_shell(variables: Mapping[str, str]) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    # What was preloaded before stays so; NCCL's calls must meet ours first.
    return "\n".join(lines) + '"${LD_PRELOAD:+:$LD_PRELOAD}"'


def _for_srun(variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        if any(separator in value for separator in _SEPARATORS):
            raise UsageError(
                f"srun cannot pass {name}={value!r}: no space or comma may be in it; "
                "export it in the batch script, --export=ALL takes it along"
            )
    return "--export=ALL," + ",".join(f"{name}={value}" for name, value in variables.items())


def _for_kubernetes(variables: Mapping[str, str]) -> str:
    import json

    library = Path(variables["NCCL_PROFILER_PLUGIN"]).parent
    run_dir = variables["ONCALL_RUN_DIR"]
    lines = ["containers:", "- env:"]
    for name, value in variables.items():
        lines += [f"  - name: {name}", f"    value: {json.dumps(value)}"]
    lines += ["  - name: ONCALL_NODE", "    valueFrom:"]
    lines += ["      fieldRef: {fieldPath: spec.nodeName}", "  volumeMounts:"]
    mounts = [("oncall-run", run_dir, ""), ("oncall-hooks", str(library), ", readOnly: true")]
    lines += [
        f"  - {{name: {name}, mountPath: {json.dumps(path)}{rights}}}"
        for name, path, rights in mounts
    ]
    lines += ["volumes:"]
    lines += [
        f"- {{name: {name}, hostPath: {{path: {json.dumps(path)}, type: Directory}}}}"
        for name, path, _ in mounts
    ]
    return "\n".join(lines)


# ------------------------------------------------------------------- show


@app.command()
def show(run_dir: _RunDir = None) -> None:
    """List the processes that record on this node, and those whose ring is still there.

    On stderr: those that do not record though they have the hooks, and why.
    """
    from oncall.core.printable import clean
    from oncall.node.rings.ring import RingReader
    from oncall.node.rings.unrecorded import in_words, unrecorded
    from oncall.node.store import places

    folder = places.rings_dir(run_dir or places.run_dir())
    if not folder.is_dir():
        raise BadInput(str(folder), "not there: no job has recorded here, or its run dir differs")
    rows = []
    for text in in_words(unrecorded(folder)):
        print(f"oncall: {clean(text)}", file=sys.stderr)
    for path in sorted(folder.glob("*.ring")):
        try:
            with RingReader.open(path, consume=False) as ring:
                rows.append(_row(ring))
        except BadInput as error:
            print(f"oncall: {error}", file=sys.stderr)
    if not rows:
        print(f"oncall: no rings in {folder}", file=sys.stderr)
        return
    rows.sort(key=lambda row: (row[1], -1 if row[0] == "?" else int(row[0]), row[-1]))
    sys.stdout.write(_table([_COLUMNS, *rows]))


def _row(ring: RingReader) -> tuple[str, ...]:
    from oncall.core.printable import clean

    header = ring.header
    state = "alive" if ring.alive else "ended" if ring.closed else "died"
    return (
        "?" if header.rank is None else str(header.rank),
        clean(header.job),
        str(ring.pid_here or header.pid),
        state,
        str(ring.head),
        str(ring.head - ring.tail),
        str(ring.dropped),
        ring.path.name,
    )


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Columns wide enough for what they hold."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(_line(row, widths) for row in rows)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join(padded).rstrip() + "\n"
