"""A rulebook's text being edited: in our editor, with colours by our own small highlighter and
problems in their lines, or in the reader's own; and what is typed of each kept as a draft in
$XDG_STATE_HOME/oncall/drafts, so that a crash loses no text.

textual's own highlighting needs a compiled grammar; a rulebook needs to be read, not parsed. A
draft is written while the reader types, and removed when its text is saved or discarded.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, SuspendNotSupported
from textual.message import Message
from textual.widgets import TextArea

from oncall.core.errors import UsageError
from oncall.core.printable import clean, file_name
from oncall.tui.drawing.literal import literal
from oncall.tui.drawing.states import role_styles
from oncall.tui.widgets.reading_list import spans
from oncall.views.snapshot import DryRun, Problem


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


@dataclass(frozen=True)
class Buffer:
    """One rulebook. `saved` is the text in force, None if there is no such rulebook yet.

    problems: of `text`, None while not known
    tried: the dry run of exactly this `text`, None if there was none
    """

    name: str
    saved: str | None
    text: str
    problems: tuple[Problem, ...] | None = None
    tried: DryRun | None = None

    @property
    def unsaved(self) -> bool:
        return self.text != self.saved

    @property
    def may_be_saved(self) -> bool:
        """It has been shown what saving would change."""
        return self.tried is not None and not self.tried.problems

    def typed(self, text: str) -> Buffer:
        """With another text, that is unknown."""
        return self if text == self.text else replace(self, text=text, problems=None, tried=None)

    def checked(self, text: str, problems: tuple[Problem, ...]) -> Buffer:
        """What was found wrong with `text`; with what has been typed since, it says nothing."""
        return replace(self, problems=problems) if text == self.text else self

    def dry_run(self, text: str, run: DryRun) -> Buffer:
        return replace(self, tried=run, problems=run.problems) if text == self.text else self

    def written(self, text: str) -> Buffer:
        """`text` is what is on the disk now."""
        return replace(self, saved=text, tried=None)


class DraftStore:
    """Buffers by name; `open` is the one in the editor."""

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}
        self.open: str | None = None

    @property
    def buffer(self) -> Buffer | None:
        """The rulebook in the editor."""
        return self._buffers.get(self.open) if self.open is not None else None

    def of(self, name: str) -> Buffer | None:
        return self._buffers.get(name)

    def unsaved(self) -> list[str]:
        """Rulebooks with a text that is not saved, of earlier sessions too."""
        typed = {name for name, buffer in self._buffers.items() if buffer.unsaved}
        known = {name for name, buffer in self._buffers.items() if not buffer.unsaved}
        return sorted(typed | (set(drafts()) - known))

    def put(self, buffer: Buffer) -> bool:
        """What is known of a rulebook has changed; returns whether it is saved or not anew."""
        before = self._buffers.get(buffer.name)
        self._buffers[buffer.name] = buffer
        return before is None or before.unsaved != buffer.unsaved

    def read(self, name: str, saved: str | None) -> Buffer | None:
        """A rulebook that was just read, or (saved None) of which there is only a draft. A draft
        that was kept goes before; None if there is neither."""
        draft = read_file(name)
        said = saved if draft is None else draft
        return None if said is None else Buffer(name, saved, said)

    def keep_draft(self) -> None:
        """What is typed is on the disk before anything else is done with it. Raises UsageError."""
        if (buffer := self.buffer) is None:
            return
        if buffer.unsaved:
            keep_file(buffer.name, buffer.text)
        else:
            drop_file(buffer.name)

    def forget(self, name: str) -> None:
        """Discard the typed text; the text on disk may be read again."""
        drop_file(name)
        self._buffers.pop(name, None)
        if self.open == name:
            self.open = None


# ----------------------------------------------------------------- files of drafts


def drafts_folder() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(home).expanduser() / "oncall" / "drafts"


def draft_file(name: str) -> Path:
    return drafts_folder() / f"{file_name(name)}.yaml"


def keep_file(name: str, text: str) -> Path:
    """Write the draft, whole or not at all. Raises UsageError where nothing can be written."""
    path = draft_file(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_suffix(".part")
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write the draft {path}: {error.strerror}") from None
    return path


def read_file(name: str) -> str | None:
    """The draft of that name, None if there is none that can be read."""
    try:
        return draft_file(name).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def drafts() -> tuple[str, ...]:
    """The rulebooks of which there are drafts."""
    with suppress(OSError):
        return tuple(sorted(path.stem for path in drafts_folder().glob("*.yaml")))
    return ()


def drop_file(name: str) -> None:
    """Remove the draft, if there is one."""
    with suppress(OSError):
        draft_file(name).unlink(missing_ok=True)
