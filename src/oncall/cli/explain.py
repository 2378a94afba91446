"""`oncall explain`: the page of a verdict."""

from __future__ import annotations

from typing import Annotated

import typer

from oncall.cli.options.rulebooks import RulesOption, SiteRulesOption, rulebooks_in_force


def explain(
    name: Annotated[
        str, typer.Argument(metavar="VERDICT", help="such as H1, faults.GPU_XID or a former name")
    ],
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
) -> None:
    """Say what a verdict means, what it reads, what excludes it and what to do, with an example."""
    from oncall.render.verdict_page import pages

    found = pages(name, rulebooks_in_force(rules, site_rules).in_force)
    typer.echo("\n".join(found), nl=False)
