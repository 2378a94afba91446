"""`oncall node serve|query|gather`: the endpoint that SSH runs on a node; not for people.

As a forced command (`command="oncall node query"` in authorized_keys) it runs the command in
SSH_ORIGINAL_COMMAND if that is one of the first two; and `gather`, which asks other nodes, only if
the forced command is that.

Separate from the other commands, so that a node need not load what only a console needs.
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
    """Answer requests. Reports errors in a frame; raises SystemExit."""
    from oncall.fleet.endpoint.node import Node
    from oncall.fleet.endpoint.serve import respond, serve
    from oncall.node.store.wire import write_error

    answers = sys.stdout.buffer
    try:
        options = _parse(arguments)
        mode, request = _requested(options)
        if mode == "gather":
            _gather(options.hosts)
            sys.exit(ExitCode.HEALTHY)
        node = Node.here(options.data_dir, options.run_dir, options.node, sealed=options.sealed)
        if mode == "serve":
            serve(node, sys.stdin.buffer, answers, read_only=options.read_only)
        else:
            respond(node, request or sys.stdin.buffer.readline(), answers)
    except UsageError as error:
        write_error(answers, str(error), "request")
        sys.exit(ExitCode.BAD_INPUT)
    except BrokenPipeError:
        # The console has closed the connection: discard buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), answers.fileno())
        sys.exit(ExitCode.BROKEN_PIPE)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    sys.exit(ExitCode.HEALTHY)


def _gather(hosts: str | None) -> None:
    """Answer a console's orders to ask nodes: over SSH, or those of `local:DIR/*`."""
    import asyncio

    from oncall.fleet.reach import reach_gateway
    from oncall.fleet.tree.gateway import serve

    reach = reach_gateway(hosts)
    asyncio.run(
        serve(
            reach.transport,
            sys.stdin.buffer,
            sys.stdout.buffer,
            memory=reach.memory,
            at_once=reach.at_once,
        )
    )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"oncall node: {message}")


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = _Parser(prog="oncall node", description="The endpoint that SSH runs on a node.")
    parser.add_argument(
        "mode",
        choices=("serve", "query", "gather"),
        help="answer many requests, a single one, or ask other nodes for a console",
    )
    parser.add_argument("request", nargs="?", help="query: the request; default: a line of stdin")
    parser.add_argument("--data-dir", type=Path, help="default: $ONCALL_DATA_DIR")
    parser.add_argument("--run-dir", type=Path, help="default: $ONCALL_RUN_DIR")
    parser.add_argument("--sealed", action="store_true", help="read a recording, no collector")
    parser.add_argument("--read-only", action="store_true", help="serve evidence, refuse probes")
    parser.add_argument("--node", help="name of this node; default: $ONCALL_NODE")
    parser.add_argument("--hosts", help="gather: local:DIR/* instead of nodes over SSH")
    return parser.parse_args(arguments)


def _requested(options: argparse.Namespace) -> tuple[str, bytes | None]:
    """The mode, and the request if it was an argument. A client of a forced command can choose
    only between the first two; the administrator chooses the folders, and `gather`."""
    original = os.environ.get("SSH_ORIGINAL_COMMAND")
    mode, request = options.mode, options.request
    if original is not None and mode == "gather":
        if shlex.split(original)[-2:] != ["node", "gather"]:
            raise UsageError("this key may run `oncall node gather` only")
        return mode, None
    if original is not None:
        try:
            words = shlex.split(original)
        except ValueError:
            words = []
        program, *rest = words or [""]
        if Path(program).name != "oncall" or rest[:1] != ["node"] or len(rest) not in (2, 3):
            raise UsageError("this key may run `oncall node serve` or `oncall node query` only")
        mode, request = rest[1], rest[2] if len(rest) == 3 else None
    if mode == "gather" and original is None and request is None:
        return mode, None
    if mode not in ("serve", "query") or (mode == "serve" and request is not None):
        raise UsageError("this key may run `oncall node serve` or `oncall node query` only")
    return mode, request.encode() if request is not None else None


if __name__ == "__main__":
    main(sys.argv[1:])
