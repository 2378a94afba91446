"""Where a node keeps its evidence and its rings, for everyone who must find them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def data_dir() -> Path:
    """The folder of live store and sealed shards: `$ONCALL_DATA_DIR`, else the system's for
    root (/var/lib/oncall), else the user's own state folder."""
    if configured := os.environ.get("ONCALL_DATA_DIR"):
        return Path(configured)
    if os.geteuid() == 0:
        return Path("/var/lib/oncall")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state, "oncall")


def run_dir(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of rings and of the collector's socket: `$ONCALL_RUN_DIR`, else /run/oncall for
    root and where the user has no folder for such files."""
    if configured := environment.get("ONCALL_RUN_DIR"):
        return Path(configured)
    own = environment.get("XDG_RUNTIME_DIR")
    return Path("/run/oncall") if os.geteuid() == 0 or not own else Path(own, "oncall")


def rings_dir(run: Path) -> Path:
    """Where training processes leave their rings."""
    return run / "rings"


def socket_path(run: Path) -> Path:
    """Where the collector answers about what it has not sealed yet."""
    return run / "collector.sock"
