"""`oncall history`: what was blamed how often, and what fixed it."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from oncall.archive.store import Archive, chosen_archive
from oncall.cli.archive import ArchiveOption, warn_of_damage
from oncall.cli.options import FormatOption, TextOrJson, rulebooks_in_force
from oncall.core.errors import UsageError
from oncall.core.units import parse_duration_ns


def history(
    component: Annotated[
        str | None,
        typer.Argument(
            metavar="[COMPONENT]",
            help="A node, or a device of one: gpu017, gpu017/mlx5_3, gpu017/gpu4. Default: all.",
        ),
    ] = None,
    archive: ArchiveOption = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this cluster. Default: all.")
    ] = None,
    verdict: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only this verdict, or the verdicts of this rulebook."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Only the last DURATION, such as 90d.")
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="What computes: local (this process), ray://local, or ray://HOST:PORT, which "
            "needs oncall-console[ray].",
        ),
    ] = None,
    failing: Annotated[
        bool,
        typer.Option(
            "--failing",
            help="Show devices whose errors come far more often than the fleet's, in the last "
            "DURATION of --since (default 7d) that the archive holds.",
        ),
    ] = False,
    format: FormatOption = TextOrJson.TEXT,  # noqa: A002
) -> None:
    """Show what was blamed, how often, and what fixed it.

    Of nodes, GPUs, NICs and links. Counts root causes that are faults. Looks at one fault less
    than an hour apart count once.
    With COMPONENT: its story, and its error counters by month.
    """
    from oncall.archive.engine import engine_at
    from oncall.archive.history import Wanted
    from oncall.archive.history import history as answer
    from oncall.render.text.history import to_json, to_text
    from oncall.rules.language.rulebook import names_today

    kept, _ = chosen_archive(archive)
    if failing:
        if component is not None or verdict is not None:
            raise UsageError("--failing is of the fleet: give neither COMPONENT nor --verdict")
        _show_failing(kept, since or "7d", cluster, engine, format)
        return
    since_ns = None
    if since is not None:
        since_ns = time.time_ns() - parse_duration_ns(since)
        if since_ns < 0:
            raise UsageError(f"--since {since}: begins before 1970")
    names = names_today(rulebooks_in_force(None, True).in_force)
    wanted = Wanted(component, verdict, cluster, since_ns, names=names)
    with engine_at(engine) as chosen:
        found = answer(kept, wanted, chosen)
    warn_of_damage(kept)
    if format is TextOrJson.JSON:
        sys.stdout.write(to_json(found, kept.damaged))
    else:
        sys.stdout.write(to_text(found, wanted))


def _show_failing(
    archive: Archive,
    within: str,
    cluster: str | None,
    engine: str | None,
    format: TextOrJson,  # noqa: A002
) -> None:
    from oncall.archive.engine import engine_at
    from oncall.archive.failing import failing
    from oncall.render.text.failing import to_json, to_text

    with engine_at(engine) as chosen:
        found = failing(archive, parse_duration_ns(within), cluster, chosen)
    warn_of_damage(archive)
    sys.stdout.write(to_json(found) if format is TextOrJson.JSON else to_text(found))
