"""The archive that a command uses, and its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.options.rulebooks import warn
from oncall.core.errors import OncallError, UsageError

if TYPE_CHECKING:
    from oncall.archive.store import Archive
    from oncall.evidence.incident import Incident

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


def chosen_archive(
    where: str | None, cluster: str | None = None, *, create: bool = False
) -> tuple[Archive, str]:
    """The archive of the options and the configuration, and the cluster's name."""
    from oncall.archive.configuration import read_configuration
    from oncall.archive.store import Archive

    configured = read_configuration()
    where = where or configured.place
    if where is None:
        raise UsageError("no archive: give --archive PLACE, or set `place` under [archive]")
    return Archive.at(where, create=create), cluster or configured.cluster


def warn_of_damage(archive: Archive) -> None:
    """Report on stderr what queries left out."""
    for one in archive.damaged[:3]:
        warn(f"left out, damaged or half-written: {one.path}: {one.why}")
    if len(archive.damaged) > 3:
        warn(f"... and {len(archive.damaged) - 3} more; see `oncall archive verify`")


def recall_archive(incident: Incident, where: str | None) -> None:
    """Add what the archive has, if one is given or configured, to the evidence. A saved incident
    keeps what it was saved with unless an archive is given. An archive that cannot be read is
    reported: it costs no diagnosis."""
    from oncall.archive.configuration import read_configuration

    try:
        known = not incident.is_empty("archived_findings")
        if where is None and (known or read_configuration().place is None):
            return
        from oncall.archive.recall import former_faults, recall

        archive, cluster = chosen_archive(where)
        recall(incident, former_faults(archive, cluster))
    except OncallError as error:
        warn(f"without the archive: {error}")
    else:
        warn_of_damage(archive)
