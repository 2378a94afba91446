"""The archive that a command uses, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options.rulebooks import warn

if TYPE_CHECKING:
    from oncall.archive.store import Archive

ArchiveOption = Annotated[
    str | None,
    typer.Option(
        "--archive",
        metavar="PLACE",
        help="The archive: a folder, or s3://BUCKET/PREFIX. Default: `place` under [archive] of "
        "the configuration.",
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="The cluster. Default: `cluster` under [archive], else `default`."
    ),
]


def warn_of_damage(archive: Archive) -> None:
    """Report on stderr what queries left out."""
    for phrase in archive.damage_phrases():
        warn(phrase)
