"""`oncall mcp`: answer agents over the Model Context Protocol, read-only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncall.cli.options import (
    HostsOption,
    InventoryOption,
    ParamOption,
    RulesOption,
    SiteRulesOption,
    SlurmJobOption,
    checked_site_folder,
    with_slurm_job,
)
from oncall.core.errors import UsageError

_LEAST_TOKEN = 16  # characters


def mcp(
    roots: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FOLDER...]",
            help="Folders with evidence that agents may read, with all below them. Default: the "
            "current folder.",
        ),
    ] = None,
    hosts: HostsOption = None,
    slurm_job: SlurmJobOption = None,
    inventory: InventoryOption = None,
    http: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            min=0,
            max=65535,
            help="Serve streamable HTTP at /mcp instead of stdio; 0: any free port.",
        ),
    ] = None,
    bind: Annotated[str, typer.Option(metavar="ADDRESS", help="Address for --http.")] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Require the token in FILE as `Authorization: Bearer`. Needed where others can "
            "reach the address.",
        ),
    ] = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
    param: ParamOption = None,
) -> None:
    """Answer agents over the Model Context Protocol.

    Its tools list jobs, diagnose, say who waits for whom, and show the rows behind a step, rules
    and stacks. None writes, probes, takes stacks or runs a command. Queries nodes only if started
    with --hosts, --inventory or --slurm-job. Text of the evidence is bounded and marked as
    untrusted.

    \b
    Examples:
      oncall mcp /shared/evidence                    # stdio: an agent starts it
      oncall mcp --hosts 'gpu[001-512]'              # running jobs too
      oncall mcp /shared/evidence --http 8765        # for agents on this machine

    Needs the extra: pip install 'oncall-console[mcp]'.
    """
    hosts = with_slurm_job(hosts, slurm_job)
    if http is None and (bind != "127.0.0.1" or token_file is not None):
        raise UsageError("--bind and --token-file need --http PORT")
    folders = tuple(_folder(root) for root in roots or [Path()])
    token = None if token_file is None else _token(token_file)
    try:
        import anyio

        from oncall.agents.http import serve_http
        from oncall.agents.server import make_server
    except ModuleNotFoundError as error:
        raise UsageError(
            f"oncall mcp needs the MCP SDK ({error.name} is missing): "
            "pip install 'oncall-console[mcp]'"
        ) from None
    from oncall.agents.evidence import Allowed, OpenEvidence
    from oncall.cli.options import parse_overrides

    allowed = Allowed(
        folders,
        live=hosts is not None or inventory is not None,
        hosts=hosts,
        inventory=inventory,
        rules=tuple(rules or ()),
        site=checked_site_folder() if site_rules else None,
        overrides=parse_overrides(param or ()),
    )
    evidence = OpenEvidence(allowed)
    server = make_server(evidence)
    try:
        if http is None:
            server.run("stdio")
        else:
            anyio.run(serve_http, server, bind, http, token)
    finally:
        evidence.close()


def _folder(root: Path) -> Path:
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder")
    return root.resolve()


def _token(file: Path) -> str:
    """The token in a file that only its owner can read. Raises UsageError."""
    try:
        readable_by_others = file.stat().st_mode & 0o077
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: {error}") from None
    if readable_by_others:
        raise UsageError(f"--token-file {file}: others can read it: chmod 600 {file}")
    if len(token) < _LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise UsageError(
            f"--token-file {file}: a token has at least {_LEAST_TOKEN} printable characters; "
            f"make one: openssl rand -hex 32 > {file}"
        )
    return token
