"""`oncall collect`: what runs on every node and records its training processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def collect(
    config: Annotated[
        Path | None, typer.Option("--config", help="A TOML file; --options shows one.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", help="Where evidence is kept.")
    ] = None,
    run_dir: Annotated[
        Path | None, typer.Option("--run-dir", help="Where the rings and the socket are.")
    ] = None,
    node: Annotated[str | None, typer.Option("--node", help="This node's name.")] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Drain what is there, seal it and leave.")
    ] = False,
    options: Annotated[
        bool,
        typer.Option("--options", help="Print every option of the file with its default."),
    ] = False,
) -> None:
    """Record the training processes of this node, until SIGTERM.

    SIGHUP reads the configuration again.
    """
    if options:
        from oncall.node.common.options_page import every_option

        typer.echo(every_option(), nl=False)
        return
    from oncall.node.agent.service import serve

    serve(config, {"data_dir": data_dir, "run_dir": run_dir, "node": node}, once=once)
