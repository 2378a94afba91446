"""What a command without nodes and paths says: what else could be looked at."""

from __future__ import annotations

from pathlib import Path

from oncall.core.errors import UsageError


def offer_what_lies_here() -> None:
    """Where no nodes are known, raises UsageError with what lies in this folder, and what runs on
    this machine, each with its command."""
    from oncall.fleet.configuration import read_configuration
    from oncall.fleet.inventory import find_hosts, no_hosts

    if find_hosts(None, None, read_configuration()) is not None:
        return
    from oncall.node.store.places import run_dir
    from oncall.use_case.lying_here import offers

    found = offers(Path(), run_dir())
    if not found:
        raise no_hosts()
    width = max(len(one.command) for one in found)
    rows = (f"  {one.command:<{width}}  {one.what}" for one in found)
    elsewhere = str(no_hosts()).removeprefix("no nodes given: ")
    lines = ["here you can look at:", *rows, f"For a job on other machines {elsewhere}"]
    raise UsageError("\n".join(lines))
