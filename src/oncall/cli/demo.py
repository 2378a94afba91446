"""`oncall demo`: a real job on this machine with a fault, watched and diagnosed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.demo.faults import Fault
    from oncall.demo.layout import Layout


def demo(
    fault: Annotated[
        str, typer.Option(metavar="NAME", help="What is broken; --list shows the names.")
    ] = "H1",
    list_faults: Annotated[
        bool, typer.Option("--list", help="Show what can be broken, and leave.")
    ] = False,
    ranks: Annotated[int, typer.Option(help="Processes of the job: 8, 12, 16 ...")] = 8,
    nodes: Annotated[int, typer.Option(help="Simulated nodes they are spread over.")] = 4,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Leave logs and evidence there, instead of nothing."),
    ] = None,
) -> None:
    """Start a small training job on this machine, break it, and diagnose it.

    The processes, the hooks in them, the collectors and the endpoint are what a cluster runs; the
    GPUs, and NCCL with them, are a stand-in. Takes less than a minute and leaves nothing behind.

    Exit codes: 0 the diagnosis is the truth, 1 it is not, 2 the demonstration did not come off.
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

    with interrupted_by_signals(), _folder(keep) as folder:
        layout = Layout.simulated(folder, ranks, nodes)
        diagnosis = _diagnosis(chosen, layout, folder, seal=keep is not None)
    judgement = judge(chosen, diagnosis)
    print(f"truth: {judgement.truth}\nfound: {judgement.found}")
    raise typer.Exit(ExitCode.HEALTHY if judgement.right else ExitCode.FINDING)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Where everything goes. Raises UsageError where something would be overwritten."""
    if keep is None:
        # A socket's path has room for a hundred characters.
        with tempfile.TemporaryDirectory(prefix="oncall-demo-") as name:
            yield Path(name)
        return
    if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
        raise UsageError(f"--keep {keep}: is there already, and is no empty folder")
    keep.mkdir(parents=True, exist_ok=True)
    yield keep.resolve()


def _diagnosis(fault: Fault, layout: Layout, folder: Path, *, seal: bool) -> Diagnosis:
    """Run the job, break it, ask its nodes while it stands, and print the report. `seal`: leave
    shards that can be read later."""
    from oncall import diagnose as use_case
    from oncall.cli.diagnose import Colour, Format, written
    from oncall.cli.gathering import Wanted, gather_fleet
    from oncall.cli.interrupt import interruptible
    from oncall.demo.demonstration import PARAMETERS, broken_cluster
    from oncall.demo.layout import JOB
    from oncall.rules.language.load import apply_overrides, load_rulebooks, shipped_folder

    rulebooks = apply_overrides(load_rulebooks([shipped_folder()]), PARAMETERS)
    hosts = f"local:{folder}/node*"
    options = [f"--hosts '{hosts}'", *(f"--param '{k}={v}'" for k, v in PARAMETERS.items())]
    with broken_cluster(fault, layout, folder, _teller()) as cluster:
        print("", f"$ oncall diagnose --job {JOB}", sep="\n", end="")
        print("", *options, sep=" \\\n    ", end="\n\n", flush=True)
        answer = gather_fleet(Wanted(JOB), hosts, None, rulebooks)
        with answer.incident as incident, interruptible(incident.con):
            diagnosis = use_case.diagnose(incident, rulebooks, JOB)
        if seal:
            cluster.seal()
    print(written(diagnosis, Format.TEXT, explain=False, color=Colour.AUTO))
    return diagnosis


def _teller() -> Callable[[str, str], None]:
    """Prints what is done, with the seconds since we began."""
    began = time.monotonic()

    def tell(what: str, how: str) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {what:<11} {how}", flush=True)

    return tell
