"""`oncall hooks`: set up the recording of a job, and list what records on this node."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.commands import group
from oncall.core.errors import BadInput, UsageError
from oncall.native import Architecture

if TYPE_CHECKING:
    from oncall.node.rings.ring import RingReader

app = group("Set up and inspect the hooks that record a job.")

_SEPARATORS = " ,\t\n"  # srun --export cannot quote them; LD_PRELOAD splits at : too
_NO_PLUGIN = ("", "none", "static_plugin")  # values of NCCL_PROFILER_PLUGIN that name no library
_COLUMNS = ("rank", "job", "pid", "state", "records", "unread", "dropped", "ring")

_Architecture = Annotated[
    Architecture | None,
    typer.Option(
        "--architecture", help="Architecture of the nodes. Default: that of this machine."
    ),
]
_RunDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder of the rings. Default: $ONCALL_RUN_DIR, else /run/oncall."
    ),
]


class Launcher(StrEnum):
    """The program that starts the job."""

    SHELL = "shell"
    TORCHRUN = "torchrun"
    SLURM = "slurm"
    KUBERNETES = "kubernetes"


@app.command()
def env(
    launcher: Annotated[
        Launcher, typer.Argument(help="Launcher of the job; torchrun inherits the shell's.")
    ] = Launcher.SHELL,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Name of the job. Default: Slurm's or torchrun's."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Parallelism of the job, such as 'tp=2 pp=2 dp=2 micro_batches=8'."
        ),
    ] = None,
    verbs: Annotated[
        bool, typer.Option("--verbs", help="Also record work requests posted to RDMA NICs.")
    ] = False,
    chain: Annotated[
        str | None,
        typer.Option(
            "--chain-profiler",
            metavar="PLUGIN",
            help="Another NCCL profiler plugin (path or name) to run behind the hooks. Default: "
            "$NCCL_PROFILER_PLUGIN.",
        ),
    ] = None,
    run_dir: _RunDir = None,
) -> None:
    """Print the environment that makes a job record itself.

    \b
    Examples:
      eval "$(oncall hooks env)"; torchrun train.py
      srun $(oncall hooks env slurm) python train.py
      oncall hooks env kubernetes     # prints a fragment of a pod spec
    """
    from oncall.native import HOOKS, VERBS
    from oncall.native.installed import library_for_launchers
    from oncall.node.store import places

    library = str(library_for_launchers(HOOKS))
    preloaded = [library, *([str(library_for_launchers(VERBS))] if verbs else [])]
    _warn_if_older()
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
        bool,
        typer.Option("--verbs", help="Print the library that records work requests to RDMA NICs."),
    ] = False,
) -> None:
    """Print the path of the library to preload.

    Prints the library that `oncall hooks install` put in $ONCALL_HOOKS_DIR or /opt/oncall/hooks.
    If there is none, prints the one in this Python package.
    """
    from oncall.native import HOOKS, VERBS
    from oncall.native.installed import library_for_launchers

    print(library_for_launchers(VERBS if verbs else HOOKS, architecture))
    _warn_if_older()


@app.command()
def install(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="Target folder, created if missing; mount it in pods."),
    ],
    architecture: _Architecture = None,
) -> None:
    """Install the hooks at a path that survives upgrades of oncall.

    Launchers preload DIR/liboncall_hooks.so. Each version has its own folder in DIR/versions, and
    the switch is atomic: running jobs keep the version they loaded.

    Copies both architectures; DIR/current/aarch64 serves aarch64 nodes if this machine is x86_64.
    """
    from oncall.native import HOOKS
    from oncall.native.installed import default_folder, install

    _check_writable_as_list(str(folder.absolute()))
    installed = install(folder, architecture)
    print(installed.library(HOOKS))
    if installed.folder != default_folder():
        line = f"export ONCALL_HOOKS_DIR={shlex.quote(str(installed.folder))}"
        print(f"oncall: to make `oncall hooks env` use this folder: {line}", file=sys.stderr)
    for other in installed.others:
        print(
            f"oncall: kept version {other.name}, which running jobs may have loaded; once they "
            f"have ended: rm -r {shlex.quote(str(other))}",
            file=sys.stderr,
        )


def _warn_if_older() -> None:
    """Warn if the installed hooks, which launchers get, are of another version than oncall."""
    from oncall.native.installed import installation, version_here

    found = installation()
    if found is not None and found.version != version_here():
        print(
            f"oncall: {found.folder} has hooks {found.version}, this oncall is {version_here()}; "
            f"to upgrade them: oncall hooks install {shlex.quote(str(found.folder))}",
            file=sys.stderr,
        )


_HINTS = {
    Launcher.SHELL: '# to set it: eval "$(oncall hooks env)"',
    Launcher.TORCHRUN: '# run before torchrun: eval "$(oncall hooks env torchrun)"',
    Launcher.SLURM: "# pass it to srun: srun $(oncall hooks env slurm) python train.py",
    Launcher.KUBERNETES: "# merge it into the pod spec; see docs/guide/hooks.md",
}


def _plugin_in_place(environment: Mapping[str, str], library: str) -> str | None:
    """The profiler plugin already configured, if any. NCCL loads only one, and the hooks take its
    place."""
    named = environment.get("NCCL_PROFILER_PLUGIN", "")
    if named == library:
        return environment.get("ONCALL_CHAIN_PROFILER")
    return None if named.lower() in _NO_PLUGIN else named


def _check_writable_as_list(path: str) -> None:
    if any(separator in path for separator in _SEPARATORS + ":"):
        raise UsageError(
            f"{path!r} cannot be preloaded: the loader splits paths at spaces, colons and commas; "
            "install oncall or copy the library to a path without them"
        )


def _for_shell(variables: Mapping[str, str]) -> str:
    lines = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    # Keep what is already preloaded, after the hooks: they must see NCCL calls first.
    return "\n".join(lines) + '"${LD_PRELOAD:+:$LD_PRELOAD}"'


def _for_srun(variables: Mapping[str, str]) -> str:
    for name, value in variables.items():
        if any(separator in value for separator in _SEPARATORS):
            raise UsageError(
                f"srun cannot pass {name}={value!r}: it contains a space or a comma; "
                "export it in the batch script and run srun with --export=ALL"
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
    """List the processes that record on this node.

    Includes ended processes whose ring still exists. Prints on stderr which processes have the
    hooks but do not record, and why.
    """
    from oncall.core.printable import clean
    from oncall.node.rings.ring import RingReader
    from oncall.node.rings.unrecorded import in_words, unrecorded
    from oncall.node.store import places

    folder = places.rings_dir(run_dir or places.run_dir())
    if not folder.is_dir():
        raise BadInput(
            str(folder), "no such folder: no job has recorded here, or it used another --run-dir"
        )
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
    """The rows as aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)
