"""A rulebook's text to edit: colours by our own small highlighter, problems in their lines; or in
the reader's own editor.

textual's own highlighting needs a compiled grammar; a rulebook needs to be read, not parsed.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, SuspendNotSupported
from textual.message import Message
from textual.widgets import TextArea

from oncall.core.errors import UsageError
from oncall.core.printable import clean
from oncall.tui.drawing.literal import literal
from oncall.tui.drawing.states import role_styles
from oncall.tui.models.reading import spans
from oncall.views.snapshot import Problem


class RuleEditor(TextArea):
    """A text area that shows what is wrong where it is wrong."""

    HELP = (
        "The editor underlines each error and describes it at the end of its line. ctrl+r tries the"
        " text on the current evidence, ctrl+g runs the fact under the cursor, ctrl+s saves."
    )
    DEFAULT_CSS = """
    RuleEditor { border: none; padding: 0; background: $background; height: 1fr; }
    RuleEditor:focus { border: none; }
    RuleEditor .text-area--cursor-line { background: $band; }
    RuleEditor .text-area--gutter { color: $muted; background: $background; }
    RuleEditor .text-area--cursor-gutter { color: $foreground; background: $band; }
    """

    class Left(Message):
        """`esc`: the reader wants out."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(
            id=id,
            soft_wrap=True,
            tab_behavior="indent",
            show_line_numbers=True,
            highlight_cursor_line=True,
        )
        self.indent_width = 2
        self.cursor_blink = False
        self._problems: dict[int, list[Problem]] = {}

    def mark(self, problems: Sequence[Problem]) -> None:
        """Show these in their lines, and no others."""
        marked: dict[int, list[Problem]] = defaultdict(list)
        for problem in problems:
            marked[problem.line - 1].append(problem)
        if marked != self._problems:
            self._problems = dict(marked)
            self.notify_style_update()
            self.refresh()

    def get_line(self, line_index: int) -> Text:
        """The line in colour, with what is wrong there after its end."""
        said = self.document.get_line(line_index)
        text = literal(Text(said, end="", no_wrap=True))
        styles = role_styles(self)
        for start, end, role in spans(said):
            text.stylize(styles[role], start, end)
        for problem in self._problems.get(line_index, ()):
            start, end = word_at(said, problem.column - 1)
            text.stylize(styles["critical"] + Style(underline=True), start, end)
        for problem in self._problems.get(line_index, ())[:1]:
            text.append(f"   ◀ {clean(problem.message)}", styles["critical"] + Style(italic=True))
        return text

    def get_component_rich_style(
        self, *names: str, partial: bool = False, default: Style | None = None
    ) -> Style:
        """The cursor's line is given a background only, so that its words keep their colours."""
        partial = partial or "text-area--cursor-line" in names
        return super().get_component_rich_style(*names, partial=partial, default=default)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "escape":  # a text area would only move the focus
            event.stop()
            event.prevent_default()
            self.post_message(self.Left())
            return
        await super()._on_key(event)


def word_at(line: str, column: int) -> tuple[int, int]:
    """From where to where the word at a 0-based column goes; at least one character."""
    column = max(0, min(column, max(len(line) - 1, 0)))
    start = end = column
    while start > 0 and _part_of_word(line[start - 1]) and _part_of_word(line[column]):
        start -= 1
    while end < len(line) and _part_of_word(line[end]):
        end += 1
    return start, max(end, column + 1)


def _part_of_word(character: str) -> bool:
    return character.isalnum() or character in "_$"


def edited_outside(app: App[Any], path: Path) -> str:
    """What `path` holds after it was edited in $VISUAL, $EDITOR or vi.

    Raises UsageError if there is no such editor, or it failed.
    """
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        with app.suspend():
            code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
    except SuspendNotSupported:
        raise UsageError("this terminal cannot start another program") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"cannot start the editor `{command}` ({why}); set EDITOR to another one"
        ) from None
    if code != 0:
        raise UsageError(f"the editor `{command}` exited with {code}; the text is unchanged")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} after editing: {error}") from None
