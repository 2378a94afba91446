"""What a command writes: a report in its format and colours, or a file of the evidence."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.terminal import terminal_width
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    MARKDOWN = "markdown"
    JSON = "json"


class TextOrJson(StrEnum):
    """The output format of what is no report."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[TextOrJson, typer.Option(help="Output format.")]


class Colour(StrEnum):
    """When to colour the text."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True)
class Shown:
    """How a report is shown; `explain`: with each step's fact, SQL and parameters."""

    format: Format = Format.TEXT
    explain: bool = False
    color: Colour = Colour.AUTO


def written(
    diagnosis: Diagnosis,
    shown: Shown,
    drawings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The report as text (as wide as the terminal), Markdown or JSON."""
    explain = shown.explain
    match shown.format:
        case Format.JSON:
            from oncall.render.contract import to_json

            return to_json(diagnosis, explain=explain)
        case Format.MARKDOWN:
            from oncall.render.markdown import to_markdown

            return to_markdown(diagnosis, explain=explain, drawings=drawings)
        case Format.TEXT:
            from oncall.render.text.report import to_text

            terminal = sys.stdout.isatty()
            plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
            colour = shown.color == Colour.ALWAYS or (
                shown.color == Colour.AUTO and terminal and not plain
            )
            return to_text(
                diagnosis, explain=explain, width=terminal_width(), colour=colour, drawings=drawings
            )


def check_target(option: str, save: Path) -> None:
    """Raise UsageError for an incident file that cannot be written, before anything is read."""
    from oncall.use_case.recordings import is_incident

    if save.suffix != ".oncall":
        raise UsageError(f"{option} {save}: the file name must end in .oncall")
    if not save.parent.is_dir():
        raise UsageError(f"{option} {save}: no such folder: {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"{option} {save}: no permission to write in {save.parent}")
    if save.is_dir():
        raise UsageError(f"{option} {save}: is a folder; give a file in it")
    if save.exists() and not is_incident(save):
        raise UsageError(f"{option} {save}: exists and is not an incident file; not overwritten")
