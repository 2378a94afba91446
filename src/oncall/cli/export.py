"""`oncall export`: an incident for other programs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, cast

import duckdb
import typer

from oncall.cli.commands import group
from oncall.cli.evidence import Evidence, evidence_of
from oncall.cli.options import (
    JobOption,
    RulesOption,
    SiteRulesOption,
    rulebooks_in_force,
    warn,
)
from oncall.cli.terminal import Interruptible
from oncall.core.errors import RelationFailed, UsageError, short_reason
from oncall.core.units import format_number

if TYPE_CHECKING:
    from oncall.evidence.incident import Incident
    from oncall.render.perfetto.trace import Item

app = group("Write an incident for Perfetto, pandas, polars or DuckDB.")

_JSON, _PACKED, _PROTOBUF = ".json", ".json.gz", ".pftrace"
_LARGE_JSON_BYTES = 100_000_000  # beyond it half the size matters to a browser


@app.command()
def perfetto(
    path: Evidence,
    job: JobOption = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: .json.gz, .json or .pftrace. Default: PATH's name with "
            ".perfetto.json.gz, in this folder.",
        ),
    ] = None,
) -> None:
    """Write one file of the whole incident for Perfetto, https://ui.perfetto.dev.

    The verdict with its steps, what each rank called and computed, who waited for whom, readings of
    GPUs, NICs and hosts, kernel logs and job logs, all on one clock as far as clocks are known.

    .pftrace is Perfetto's own format, half as large as .json, with times to the nanosecond. Needs
    the extra: pip install 'oncall-console[perfetto]'.
    """
    from oncall.render.perfetto.trace import trace
    from oncall.use_case.diagnose import diagnose
    from oncall.views import incident_tracks

    output = output or Path(f"{path.name}.perfetto{_PACKED}")
    write = _writer(output)
    rulebooks = rulebooks_in_force(rules, site_rules)
    with evidence_of(path, job) as incident, Interruptible(incident.con):
        diagnosis = diagnose(incident, rulebooks.in_force, job)
        clocks = incident_tracks.prepare(incident)
        items = trace(
            diagnosis,
            clocks,
            incident_tracks.events(incident),
            incident_tracks.arrows(incident),
        )
        first = next(items, None)
        if first is None:
            raise UsageError(f"{path}: its evidence has no times, so there is nothing to draw")
        with _whole(output) as file:
            write(chain((first,), items), file)
            large = file.tell() > _LARGE_JSON_BYTES and not output.name.endswith(_PROTOBUF)
    typer.echo(f"{output}: open it in https://ui.perfetto.dev")
    if large:
        warn(f"it is large JSON; `-o {path.name}{_PROTOBUF}` writes half as much")


def _writer(output: Path) -> Callable[[Iterable[Item], IO[bytes]], None]:
    """What writes the format that the file's name asks for."""
    if not output.name.endswith((_JSON, _PACKED, _PROTOBUF)):
        raise UsageError(
            f"--output {output}: the file name must end in {_JSON}, {_PACKED} or {_PROTOBUF}"
        )
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: no such folder: {output.parent}")
    if not output.name.endswith(_PROTOBUF):
        from oncall.render.perfetto.as_json import write_json

        return write_json
    try:
        from oncall.render.perfetto.as_protobuf import write_protobuf
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--output {output}: {_PROTOBUF} needs PyPI's `perfetto` ({error.name} is missing): "
            f"pip install 'oncall-console[perfetto]'; {_PACKED} needs nothing"
        ) from None
    return write_protobuf


@contextmanager
def _whole(output: Path) -> Iterator[IO[bytes]]:
    """The file to write, packed by its name; it is there when all is written, or not at all."""
    part = output.with_name(f".{output.name}.part")
    opened = gzip.open if output.name.endswith(_PACKED) else open
    try:
        with opened(part, "wb") as file:
            yield cast(IO[bytes], file)
        part.replace(output)
    except OSError as error:
        error.filename = output  # also where a write failed, as of a full disk
        raise
    finally:
        part.unlink(missing_ok=True)


@app.command()
def parquet(
    path: Evidence,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder to write to; it is made.")],
    job: JobOption = None,
) -> None:
    """Write every table and relation that holds rows as a Parquet file.

    The metadata `oncall` of each file gives the unit and the meaning of its columns, as JSON.
    """
    from oncall.evidence.registry import all_relations
    from oncall.evidence.schema import BY_NAME

    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: is not empty; give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    with evidence_of(path, job) as incident, Interruptible(incident.con):
        for name in (*BY_NAME, *sorted(all_relations())):
            try:
                incident.provide([name])
            except RelationFailed as error:
                warn(f"{name} is left out: {error}")
                continue
            rows = incident.rows(name)
            if rows:
                _write(incident, name, folder / f"{name}.parquet")
                typer.echo(
                    f"{name}.parquet  {format_number(rows)} {'row' if rows == 1 else 'rows'}"
                )


def _write(incident: Incident, name: str, path: Path) -> None:
    from oncall.evidence.schema import SCHEMA_VERSION
    from oncall.render.schema import meaning_of

    about, columns = meaning_of(name)
    described = {
        "schema": SCHEMA_VERSION,
        "about": about,
        "columns": {one.name: {"unit": one.unit, "meaning": one.meaning} for one in columns},
    }
    target, text = (
        one.replace("'", "''") for one in (str(path), json.dumps(described, ensure_ascii=False))
    )
    try:
        incident.con.execute(
            f"COPY (FROM \"{name}\") TO '{target}' "
            f"(FORMAT parquet, COMPRESSION zstd, KV_METADATA {{oncall: '{text}'}})"
        )
    except duckdb.IOException as error:
        path.unlink(missing_ok=True)
        raise UsageError(f"{path} cannot be written: {short_reason(error)}") from error
