"""The report that a command prints: its format, and when it is coloured."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.terminal import terminal_width

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
