"""`oncall` in this process, as a terminal would run it: half a second of imports a command are not
what most tests are about.

    done = oncall("hooks", "env", ONCALL_JOB="llama")
    assert (done.returncode, done.stderr) == (0, "")
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from dataclasses import dataclass
from unittest import mock

from oncall.cli.main import main


@dataclass(frozen=True)
class Done:
    """What the process left: its exit code and its two streams."""

    returncode: int
    stdout: str
    stderr: str


def oncall(*arguments: object, **environment: str) -> Done:
    """`oncall ARGUMENTS`, with these variables beside those there are. A traceback is an error."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with (
        mock.patch.dict(os.environ, environment),
        mock.patch.object(sys, "argv", ["oncall", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as left:
            code = left.code
    shown, said = (stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]
    assert "Traceback" not in said, said
    return Done(int(code or 0), shown, said)
