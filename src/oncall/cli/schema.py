"""`oncall schema`: the evidence tables and the relations computed from them."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    MARKDOWN = "markdown"


def schema(
    format: Annotated[Format, typer.Option(help="Output format.")] = Format.TEXT,  # noqa: A002
) -> None:
    """Print the tables and relations that SQL in rules can read."""
    from oncall.render import schema as pages

    sys.stdout.write(pages.to_markdown() if format == Format.MARKDOWN else pages.to_text())
