"""The rulebooks that a command goes by, and on stderr what of the site's is left out and why."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from oncall.rules.site import Rulebooks

_MOST_TOLD = 2  # problems of a file; `oncall rules check` tells them all

More = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Rulebooks above the shipped and the site's own; a later one overrides. Repeatable.",
    ),
]
WithSite = Annotated[
    bool,
    typer.Option(
        "--site-rules/--no-site-rules",
        help="Whether the site's rulebooks count: $XDG_CONFIG_HOME/oncall/rules, or `folder` "
        "under [rules] of the configuration.",
    ),
]


def rulebooks_in_force(
    more: Sequence[Path] | None, with_site: bool, overrides: Mapping[str, str] | None = None
) -> Rulebooks:
    """Shipped, the site's, `more`. What is wrong with the site's is told and left out.

    Raises RulebookError, UsageError for what the command line gives.
    """
    from oncall.rules.site import read_rulebooks

    rulebooks = read_rulebooks(site_folder_told() if with_site else None, more or (), overrides)
    for one in rulebooks.set_aside:
        instead = f", {one.name} runs without it" if one.instead else ""
        tell(f"the site's {one.path} is left out{instead} (see `oncall rules check`):")
        tell("\n".join(map(str, one.problems[:_MOST_TOLD])), by="")
    return rulebooks


def site_folder_told() -> Path:
    """Where the site's rulebooks lie; a configuration that is wrong is told, and harms nothing."""
    from oncall.rules.site_folder import site_folder

    folder, problems = site_folder()
    for problem in problems:
        tell(f"{problem}; the site's rulebooks are looked for in {folder}")
    return folder


def tell(text: str, by: str = "oncall: ") -> None:
    """Something that harms nothing, on stderr."""
    from oncall.core.printable import clean_lines

    print(by + "\n".join(clean_lines(text)), file=sys.stderr)
