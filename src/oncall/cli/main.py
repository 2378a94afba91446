"""The console script: streams that hold, and an exit code for whatever happens."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import NoReturn, TextIO, cast

from oncall.cli.safe_stream import SafeStream
from oncall.core.errors import ExitCode


def main() -> NoReturn:
    """Run `oncall`. Leaves by SystemExit with a code of `ExitCode`."""
    # Importing makes a hundred thousand objects that all stay: looking for garbage among them
    # again and again costs a tenth of a whole diagnosis.
    gc.set_threshold(100_000, 20, 100)
    # numpy starts a thread a core for linear algebra, of which there is none.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    _mend_streams()
    try:
        # Imported here, so that Ctrl-C in the first tenths of a second is no traceback either.
        if sys.argv[1:2] == ["node"]:
            from oncall.cli.node import main as node  # light: what a node runs for every question

            node(sys.argv[2:])
        from oncall.cli.commands import app

        app(prog_name="oncall")
    except KeyboardInterrupt:
        print("oncall: interrupted", file=sys.stderr)
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        if os.environ.get("ONCALL_DEBUG"):
            raise
        print(
            f"oncall: this is a bug: {type(error).__name__}: {error}\n"
            "Run it again with ONCALL_DEBUG=1 for the traceback, and report that.",
            file=sys.stderr,
        )
        sys.exit(ExitCode.BUG)
    sys.exit(ExitCode.HEALTHY)


def _mend_streams() -> None:
    """A closed stream (`>&-`) takes what is written, a narrow one shows `?` for a glyph, and none
    hands on what could steer a terminal."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # Every command writes through these, and so does what is not ours: errors of the command line.
    sys.stdout = cast(TextIO, SafeStream(sys.stdout))
    sys.stderr = cast(TextIO, SafeStream(sys.stderr))


if __name__ == "__main__":
    main()
