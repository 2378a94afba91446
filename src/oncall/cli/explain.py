"""`oncall explain`: the page of a verdict."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oncall.cli.options import RulesOption, SiteRulesOption, rulebooks_in_force
from oncall.cli.terminal import terminal_width


def explain(
    name: Annotated[
        str, typer.Argument(metavar="VERDICT", help="such as H1, faults.GPU_XID or a former name")
    ],
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
) -> None:
    """Say what a verdict means, what excludes it, what to do."""
    from oncall.render.verdict_page import pages

    text = "\n".join(pages(name, rulebooks_in_force(rules, site_rules).in_force))
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=terminal_width(most=100)).print(Markdown(text))
