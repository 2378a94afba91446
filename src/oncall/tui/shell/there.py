"""What a reader does on the node of what is under the cursor, in a terminal of its own: a shell,
the kernel's log, and what the site's configuration adds.

# $XDG_CONFIG_HOME/oncall/config.toml, above /etc/oncall/config.toml
[commands.nvtop]
run = "nvtop"                      # {node} and {rank} stand for what the cursor is on
key = "ctrl+n"                     # may be left out: it is in the list of all actions
why = "What the GPUs of this node do now."
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any

from textual.app import App, SuspendNotSupported

from oncall.core.configuration import read_tables
from oncall.core.errors import BadInput, UsageError
from oncall.core.printable import harmless, shell_word
from oncall.tui.shell.actions import ACTIONS
from oncall.tui.shell.keys import ActionEntry
from oncall.tui.shell.screen import ConsoleScreen

_FIELDS = ("node", "rank")
_SETTINGS = {"run": True, "key": False, "why": False}  # name -> whether it must be there


@dataclass(frozen=True)
class NodeAction(ActionEntry[ConsoleScreen]):
    """A command that is run on the node under the cursor, shell text; empty: a shell."""

    run: str = ""

    def command(self, place: Mapping[str, str]) -> str:
        """What its node's shell gets."""
        return self.run.format(**{name: shell_word(place[name], name) for name in _of(self.run)})


def _of(run: str) -> set[str]:
    """The fields of a command. Raises ValueError."""
    return {name for _, name, _, _ in Formatter().parse(run) if name is not None}


def _action(name: str, key: str, title: str, run: str, why: str) -> NodeAction:
    def why_not(screen: ConsoleScreen) -> str | None:
        if not screen.state.live:
            return "this is a recording, so there are no nodes to go to"
        place = screen.place_here()
        lacking = next((one for one in ("node", *sorted(_of(run))) if not place.get(one)), None)
        return f"no {lacking} is under the cursor" if lacking else None

    return NodeAction(name, key, title, why, why_not, run=run)


OWN = (
    _action("shell", "dollar_sign", "Shell", "", "Open a shell on the node under the cursor."),
    _action("kernel_log", "L", "Kernel log", "dmesg --follow --human --nopager",
            "Follow the kernel's log on the node under the cursor; ctrl+c ends it."),
)  # fmt: skip


def read_commands(files: Sequence[Path]) -> tuple[tuple[NodeAction, ...], list[BadInput]]:
    """Ours and those under [commands], a later file's over an earlier one's; and what is wrong."""
    tables, problems = read_tables("commands", files)
    found: dict[str, NodeAction] = {}
    taken = {key: one.title for one in (*ACTIONS, *OWN) for key in one.key.split(",") if key}
    for table in tables:
        for name, settings in table.values.items():
            if why := _why_not(settings, taken):
                problems.append(BadInput(str(table.path), f"[commands.{name}] {why}"))
            else:
                about = (
                    settings.get("why") or f"Run {settings['run']} on the node under the cursor."
                )
                run, key = settings["run"], settings.get("key", "")
                found[name] = _action(f"commands.{name}", key, name, run, about)
    return (*OWN, *found.values()), problems


def _why_not(settings: Any, taken: Mapping[str, str]) -> str | None:
    """What is wrong with a command's settings."""
    if not isinstance(settings, dict):
        return "must be a table with run, key and why"
    for name, needed in _SETTINGS.items():
        if name not in settings and needed:
            return f"has no `{name}`"
        if not isinstance(settings.get(name, ""), str):
            return f"{name} must be a text"
    if unknown := settings.keys() - _SETTINGS.keys():
        return f"unknown setting `{min(unknown)}`"
    try:
        strange = _of(settings["run"]) - set(_FIELDS)
    except ValueError as error:
        return f"run: {error}; write {{{{ and }}}} for braces of the shell"
    if strange:
        return f"run: unknown field {{{min(strange)}}}; there are {{node}} and {{rank}}"
    if (key := settings.get("key", "")) in taken:
        return f"key: {key} is already {taken[key]}"
    return None


def run_there(app: App[Any], words: Sequence[str]) -> None:
    """Run it in the terminal, in the console's place. Raises UsageError."""
    try:
        with app.suspend():
            # A handler, not `ignore`: the program that is run would inherit that.
            before = signal.signal(signal.SIGINT, lambda *_: None)
            try:
                sys.stdout.write(f"$ {harmless(' '.join(words))}\n")
                sys.stdout.flush()
                code = subprocess.run(list(words), check=False).returncode
            finally:
                signal.signal(signal.SIGINT, before)
    except SuspendNotSupported:
        raise UsageError("this terminal cannot start another program") from None
    except OSError as error:
        raise UsageError(f"cannot start {words[0]}: {error.strerror}") from None
    if code == 255:  # of ssh itself
        raise UsageError("ssh could not reach the node")
