"""`oncall schema`: the evidence tables, and the relations computed from them."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class Format(StrEnum):
    """What is printed."""

    TEXT = "text"
    MARKDOWN = "markdown"


def schema(
    format: Annotated[Format, typer.Option(help="What to print.")] = Format.TEXT,  # noqa: A002
) -> None:
    """Print what a rule's SQL may read: every evidence table and relation."""
    from oncall.render import schema as pages

    sys.stdout.write(pages.to_markdown() if format == Format.MARKDOWN else pages.to_text())
