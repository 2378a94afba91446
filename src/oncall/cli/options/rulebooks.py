"""The rulebooks of a command, its options for them, and warnings about the site's rulebooks."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.core.errors import UsageError
from oncall.core.symptom import Symptom

if TYPE_CHECKING:
    from oncall.rules.site import Rulebooks

_MOST_SHOWN = 2  # problems of a file; `oncall rules check` lists all

RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Folder of rulebooks that override the shipped and the site's ones; the last one "
        "wins. Repeatable.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE.NAME=VALUE",
        help="Override a rulebook parameter, such as hang.hang_after=30s. Repeatable.",
    ),
]
SiteRulesOption = Annotated[
    bool,
    typer.Option(
        "--site-rules/--no-site-rules",
        help="Use the site's rulebooks: `folder` under [rules] of the configuration, else "
        "$XDG_CONFIG_HOME/oncall/rules.",
    ),
]
SymptomOption = Annotated[
    Symptom,
    typer.Option(
        help="What you observed. It decides whether waiting ranks are a hang, where nothing in the "
        "evidence contradicts it. Where no fault is found, the answer is then inconclusive, and "
        "names the best suspect or what was compared.",
    ),
]


def rulebooks_in_force(
    more: Sequence[Path] | None, with_site: bool, overrides: Mapping[str, str] | None = None
) -> Rulebooks:
    """The shipped rulebooks, the site's and those of the folders `more`.

    Site rulebooks with errors are reported on stderr and skipped. Raises RulebookError or
    UsageError for errors in `more` and `overrides`.
    """
    from oncall.rules.site import read_rulebooks

    rulebooks = read_rulebooks(checked_site_folder() if with_site else None, more or (), overrides)
    for one in rulebooks.set_aside:
        instead = f"; the shipped {one.name} runs instead" if one.instead else ""
        warn(f"site rulebook {one.path} skipped{instead} (see `oncall rules check`):")
        warn("\n".join(map(str, one.problems[:_MOST_SHOWN])), prefix="")
    return rulebooks


def parse_overrides(params: Sequence[str]) -> dict[str, str]:
    """`hang.hang_after=30s` as {"hang.hang_after": "30s"}."""
    pairs = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or "." not in name or not value.strip():
            raise UsageError(
                f"--param {text}: expected RULE.NAME=VALUE, such as hang.hang_after=30s"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def checked_site_folder() -> Path:
    """The folder of the site's rulebooks. Errors of the configuration are only reported."""
    from oncall.rules.site_folder import site_folder

    folder, problems = site_folder()
    for problem in problems:
        warn(f"{problem}; using the site rulebooks in {folder}")
    return folder


def warn(text: str, prefix: str = "oncall: ") -> None:
    """Print a warning on stderr."""
    from oncall.core.printable import clean_lines

    print(prefix + "\n".join(clean_lines(text)), file=sys.stderr)
