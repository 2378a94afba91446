"""A job's configuration: as its launcher stated it ("tp=2 pp=2 dp=2 micro_batches=8"), or as the
arguments of the training process say. Its environment, where secrets lie, is not read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oncall.core.training import from_arguments
from oncall.node.store.batch import Batch, one_row

_NUMBERS = ("tp", "pp", "dp", "ep", "cp", "micro_batches")
_WORDS = ("schedule", "framework")
_MOST_BYTES = 256 * 1024


def parse_configuration(text: str) -> dict[str, int | str]:
    """The settings that the evidence schema knows; others, and what is no number, are passed
    over: a job's own words must never stop the collector."""
    stated: dict[str, int | str] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name in _NUMBERS and value.isascii() and value.isdigit() and len(value) <= 9:
            stated[name] = int(value)
        elif name in _WORDS and value:
            stated[name] = value
    return stated


def job_row(
    job: str,
    world_size: int | None,
    configuration: str,
    framework: str,
    arguments: Sequence[str] = (),
) -> Batch:
    """One row of `jobs`. What the launcher stated goes before the arguments of the process."""
    started = from_arguments(arguments, "command line")
    stated: dict[str, int | bool | str | None] = {"framework": framework or None}
    if started is not None:
        stated = {**started.complete(world_size), "origin": started.origin}
        stated["framework"] = framework or stated.get("framework")
    launched = parse_configuration(configuration)
    if launched:
        stated |= {**launched, "origin": "launcher"}
    stated.pop("world_size", None)
    return one_row("jobs", job=job, world_size=world_size, **stated)


def arguments_of(pid: int, root: Path = Path("/")) -> tuple[str, ...]:
    """The arguments of a living process, none where they cannot be read."""
    try:
        content = (root / "proc" / str(pid) / "cmdline").read_bytes()
    except OSError:
        return ()
    text = content[:_MOST_BYTES].decode(errors="replace").rstrip("\0")
    return tuple(text.split("\0")) if text else ()  # a process that just begins has none yet
