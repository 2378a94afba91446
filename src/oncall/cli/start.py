"""The console script. As light as can be, so that Ctrl-C finds nothing to take apart."""

from __future__ import annotations

import signal


def run() -> None:
    """Run `oncall`. Until a command begins, Ctrl-C just ends the process, as it does `cat`: there
    is nothing to put in order yet, and Python would print where an import was."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from oncall.cli.main import run as in_order

    in_order()
