"""`oncall draw`: one command for each kind of drawing."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

from oncall.cli.commands import group
from oncall.cli.draw.network import network, provenance, waiting
from oncall.cli.draw.stages import stages
from oncall.cli.draw.traffic import traffic


class _Kinds(TyperGroup):
    """Makes `oncall draw FILE.oncall` draw traffic."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ("--help", "-h"))
        return super().parse_args(ctx, args if named or not args else ["traffic", *args])


app = group(
    "Draw recorded traffic, pipelines and networks.\n\n"
    "Prints text; with --output, writes a picture. Without a command, draws traffic.",
    cls=_Kinds,
)
app.command()(traffic)
app.command()(stages)
app.command()(waiting)
app.command()(network)
app.command()(provenance)
