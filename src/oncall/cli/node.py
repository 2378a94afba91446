"""`oncall node serve|query`: the endpoint that SSH runs; never typed by people.

As a forced command (`command="oncall node query"` in authorized_keys) it looks at what was asked
for in SSH_ORIGINAL_COMMAND, and does that if it is one of these two and nothing else.

Kept apart from the other commands: a node answers before it has loaded what a console needs.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from oncall.core.errors import ExitCode, UsageError


def main(arguments: Sequence[str]) -> NoReturn:
    """Answer requests; leaves by SystemExit. Whatever is wrong is told in a frame."""
    from oncall.fleet.endpoint import Node, respond, serve
    from oncall.node.store.wire import write_error

    answers = sys.stdout.buffer
    try:
        told = _parse(arguments)
        mode, request = _asked(told)
        node = Node.here(told.data_dir, told.run_dir, told.node, sealed=told.sealed)
        if mode == "serve":
            serve(node, sys.stdin.buffer, answers, read_only=told.read_only)
        else:
            respond(node, request or sys.stdin.buffer.readline(), answers)
    except UsageError as error:
        write_error(answers, str(error), "request")
        sys.exit(ExitCode.BAD_INPUT)
    except BrokenPipeError:
        # The console went away; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
        sys.exit(ExitCode.BROKEN_PIPE)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    sys.exit(ExitCode.HEALTHY)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"oncall node: {message}")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="oncall node", description="The endpoint that SSH runs on a node.")
    parser.add_argument("mode", choices=("serve", "query"), help="many requests, or one")
    parser.add_argument("request", nargs="?", help="query: the request, else a line on stdin")
    parser.add_argument("--data-dir", type=Path, help="instead of $ONCALL_DATA_DIR")
    parser.add_argument("--run-dir", type=Path, help="instead of $ONCALL_RUN_DIR")
    parser.add_argument("--sealed", action="store_true", help="no collector: a recording")
    parser.add_argument("--read-only", action="store_true", help="evidence only, no probes")
    parser.add_argument("--node", help="instead of $ONCALL_NODE")
    return parser.parse_args(arguments)


def _asked(told: argparse.Namespace) -> tuple[str, bytes | None]:
    """The mode, and the request if it was an argument. Of what a forced command's client asks
    only the mode and the request count: folders are the administrator's to choose."""
    asked = os.environ.get("SSH_ORIGINAL_COMMAND")
    mode, request = told.mode, told.request
    if asked is not None:
        try:
            words = shlex.split(asked)
        except ValueError:
            words = []
        program, *rest = words or [""]
        if Path(program).name != "oncall" or rest[:1] != ["node"] or len(rest) not in (2, 3):
            raise UsageError("this key may run `oncall node serve` or `oncall node query` only")
        mode, request = rest[1], rest[2] if len(rest) == 3 else None
    if mode not in ("serve", "query") or (mode == "serve" and request is not None):
        raise UsageError("this key may run `oncall node serve` or `oncall node query` only")
    return mode, request.encode() if request is not None else None


if __name__ == "__main__":
    main(sys.argv[1:])
