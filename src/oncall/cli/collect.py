"""`oncall collect`: the collector that runs on every node and records its training processes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def collect(
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="TOML file; --options prints one."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option("--data-dir", metavar="DIR", help="Where to store evidence.")
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="Where the rings and the socket are."),
    ] = None,
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Name of this node.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Drain the rings once, seal the shard and exit.")
    ] = False,
    options: Annotated[
        bool,
        typer.Option("--options", help="Print every option of the file with its default."),
    ] = False,
) -> None:
    """Record the training processes of this node.

    Runs until SIGTERM. SIGHUP reloads the configuration.
    """
    if options:
        from oncall.node.common.config import every_option

        typer.echo(every_option(), nl=False)
        return
    from oncall.node.agent.service import serve

    serve(config, {"data_dir": data_dir, "run_dir": run_dir, "node": node}, once=once)
