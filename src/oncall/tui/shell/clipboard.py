"""`y`: copy to the clipboard of the terminal, which over SSH is the reader's own (OSC 52)."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping

from textual.widget import AwaitMount

from oncall.core.units import format_bytes
from oncall.tui.shell.console import Console
from oncall.tui.shell.messages import Copy, Question
from oncall.tui.shell.screen import screen_in_sight
from oncall.tui.widgets.prompt import Choice

_SCREEN_CHUNK = 250  # GNU screen passes on at most 256 bytes at a time


def osc52(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """What tells a terminal to take `text` into its clipboard.

    GNU screen knows no OSC 52 and must be asked to pass it through; tmux knows it.
    """
    encoded = base64.b64encode(text.encode(errors="replace")).decode()
    sequence = f"\x1b]52;c;{encoded}\x07"
    if "STY" not in environment:
        return sequence
    parts = (sequence[i : i + _SCREEN_CHUNK] for i in range(0, len(sequence), _SCREEN_CHUNK))
    return "".join(f"\x1bP{part}\x1b\\" for part in parts)


class Clipboard(Console):
    """Copies what the screen offers."""

    def action_copy(self) -> AwaitMount | None:
        screen = screen_in_sight(self)
        copies = screen.copies() if screen is not None else ()
        if len(copies) == 1:
            self.copy(copies[0])
            return None

        def chosen(key: str | None) -> None:
            for one in copies:
                if one.key == key:
                    self.copy(one)

        return self.push_screen(Choice("Copy", [(one.key, one.title) for one in copies]), chosen)

    def copy(self, one: Copy) -> None:
        """Copy it, asking the session for it if need be."""

        def take(text: str) -> None:
            self.copy_to_clipboard(text)
            self.tell(f"copied {one.title}, {format_bytes(len(text.encode()))}")

        if isinstance(one.text, str):
            take(one.text)
        else:
            self.ask(Question("copy", one.text, self, "writing", take))
