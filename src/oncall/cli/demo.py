"""`oncall demo`: run a small job on this machine, inject a fault, and diagnose it."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.console.session import Session
    from oncall.core.diagnosis import Diagnosis
    from oncall.demo.faults import Fault
    from oncall.demo.layout import Layout
    from oncall.demo.orders import Controls


def demo(
    fault: Annotated[
        str, typer.Option(metavar="NAME", help="Fault to inject; --list prints the names.")
    ] = "H1",
    console: Annotated[
        bool,
        typer.Option(
            "--console", help="Show the running job in the console; there, d breaks a rank."
        ),
    ] = False,
    list_faults: Annotated[bool, typer.Option("--list", help="List the faults and exit.")] = False,
    ranks: Annotated[int, typer.Option(help="Ranks of the job: 8, 12, 16, ...")] = 8,
    nodes: Annotated[int, typer.Option(help="Simulated nodes to place them on.")] = 4,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep logs and evidence in this folder."),
    ] = None,
) -> None:
    """Run a small training job here, break it, and diagnose it.

    The processes, hooks, collectors and endpoint are those that a cluster runs; NCCL and the GPUs
    are simulated. Takes less than a minute and cleans up after itself.

    Prints the injected fault and the diagnosis; exits with 1 if they differ. With --console
    nothing is broken until you do it, and a stopwatch runs until the headline names the rank.
    """
    from oncall.demo.faults import FAULTS, fault_named

    if list_faults:
        for one in FAULTS:
            who = f"rank {one.broken}: " if one.ranks else ""
            print(f"{one.name:<12}{who}{one.truth}")
        return
    chosen = fault_named(fault)

    from oncall.demo.layout import Layout
    from oncall.demo.processes import interrupted_by_signals
    from oncall.demo.verdict import judge

    if console:
        import_module("oncall.tui.run").require_terminal()
    with interrupted_by_signals(), _folder(keep) as folder:
        layout = Layout.simulated(folder, ranks, nodes)
        if console:
            code = _in_console(layout, folder, seal=keep is not None)
            if keep is not None:
                print(f"See it again: oncall open {shlex.quote(str(keep))}")
            raise typer.Exit(code)
        diagnosis = _diagnosis(chosen, layout, folder, seal=keep is not None)
    judgement = judge(chosen, diagnosis)
    print(f"truth: {judgement.truth}\nfound: {judgement.found}")
    if keep is None:
        print("The evidence is gone; `--keep DIR` keeps it for `oncall open DIR`.")
    else:
        print(f"See it in the console: oncall open {shlex.quote(str(keep))}")
    raise typer.Exit(ExitCode.HEALTHY if judgement.right else ExitCode.FINDING)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder for logs and evidence. Raises UsageError if it would overwrite something."""
    if keep is None:
        # The path of a Unix socket is limited to about a hundred characters.
        with tempfile.TemporaryDirectory(prefix="oncall-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep {keep}: already exists and is not an empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _in_console(layout: Layout, folder: Path, *, seal: bool) -> int:
    """Run the job and show it until the console is left; returns the console's exit code. `seal`:
    leave shards that can be read later."""
    from oncall.cli.console import run_console
    from oncall.demo.demonstration import PARAMETERS, running_cluster
    from oncall.demo.layout import JOB
    from oncall.demo.orders import with_console

    def opener() -> Session:
        from oncall.console.opening import open_fleet

        return open_fleet(f"local:{folder}/node*", None, JOB, overrides=PARAMETERS)

    def show(controls: Controls) -> int:
        return run_console(opener, JOB, controls=controls)

    with running_cluster(layout, folder, _progress_printer()) as cluster:
        code = with_console(cluster, show)
        if seal:
            cluster.seal()
    return code


def _diagnosis(fault: Fault, layout: Layout, folder: Path, *, seal: bool) -> Diagnosis:
    """Run the job, inject the fault, query its nodes while it hangs or runs slow, and print the
    report. `seal`: leave shards that can be read later."""
    from oncall.cli.options import Shown, written
    from oncall.cli.terminal import Interruptible
    from oncall.demo.demonstration import PARAMETERS, broken_cluster
    from oncall.demo.layout import JOB
    from oncall.rules.language.load import apply_overrides, load_rulebooks, shipped_folder
    from oncall.use_case import diagnose as use_case
    from oncall.use_case.gathering import Wanted, gather_fleet

    rulebooks = apply_overrides(load_rulebooks([shipped_folder()]), PARAMETERS)
    hosts = f"local:{folder}/node*"
    options = [f"--hosts '{hosts}'", *(f"--param '{k}={v}'" for k, v in PARAMETERS.items())]
    with broken_cluster(fault, layout, folder, _progress_printer()) as cluster:
        print("", f"$ oncall diagnose --job {JOB}", sep="\n", end="")
        print("", *options, sep=" \\\n    ", end="\n\n", flush=True)
        answer = gather_fleet(Wanted(JOB), hosts, None, rulebooks)
        with answer.incident as incident, Interruptible(incident.con):
            diagnosis = use_case.diagnose(incident, rulebooks, JOB)
        if seal:
            cluster.seal()
    print(written(diagnosis, Shown()))
    return diagnosis


def _progress_printer() -> Callable[[str, str], None]:
    """A function that prints each action with the seconds since the start."""
    began = time.monotonic()

    def report(action: str, details: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {action:<11} {details}", flush=True)

    return report
