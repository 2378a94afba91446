"""Notes that a reader writes about an incident, kept beside it: one JSON object a line.

Of a saved file they are `<file>.notes`, of anything else
`$XDG_STATE_HOME/oncall/notes/<job>.notes`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from oncall.core.errors import BadInput
from oncall.core.json_text import json_of
from oncall.core.printable import clean, clean_lines, file_name
from oncall.render.markdown import escape
from oncall.views.words import instant

NoteKind = Literal["note", "command", "solved"]
_MOST_PRINTED = 30  # lines of a command's output in a report


@dataclass(frozen=True)
class Note:
    """`at_ns` is the moment the note is about, `written_ns` when it was written; Unix ns. A `kind`
    of `command` was run and printed `output`; one of `solved` says what fixed the incident."""

    text: str
    at_ns: int | None
    written_ns: int
    about: str = ""  # a finding or rank, as the screen calls it
    kind: NoteKind = "note"
    output: str = ""


def notes_file(job: str, recording: Path | None = None) -> Path:
    """Where the notes of a recording that is one file, or of a job, are kept."""
    if recording is not None and recording.is_file():
        return recording.with_name(recording.name + ".notes")
    home = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    name = file_name(job or "unnamed")
    return Path(home).expanduser() / "oncall" / "notes" / f"{name}.notes"


def read_notes(path: Path) -> tuple[Note, ...]:
    """The notes there, in the order written; none without a file. Raises BadInput."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot read the notes: {error}") from None
    notes = []
    for number, line in enumerate(lines, 1):
        try:
            notes.append(Note(**json_of(line)))
        except (ValueError, TypeError):
            raise BadInput(f"{path}:{number}", "not a note") from None
    return tuple(notes)


def add_note(path: Path, note: Note) -> None:
    """Append it. Raises BadInput where nothing can be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(asdict(note)) + "\n")
    except OSError as error:
        raise BadInput(str(path), f"cannot write the note: {error.strerror}") from None


def to_markdown(notes: Sequence[Note], since_ns: int | None = None) -> str:
    """Sections of a report: what fixed it, notes, commands with the end of what they printed; of
    what was written before `since_ns` only what fixed it then. Empty without any."""
    old = [note for note in notes if since_ns is not None and note.written_ns < since_ns]
    new = [note for note in notes if note not in old]
    sections = (
        ("Solved", [note for note in new if note.kind == "solved"]),
        ("Fixed earlier", [note for note in old if note.kind == "solved"]),
        ("Notes", [note for note in new if note.kind == "note"]),
        ("Commands run", [note for note in new if note.kind == "command"]),
    )
    lines: list[str] = []
    for title, some in sections:
        if some:
            lines += [f"## {title}", ""]
        for note in some:
            lines += _note(note)
        if some:
            lines.append("")
    return "\n".join(lines)


def _note(note: Note) -> list[str]:
    when = f"{instant(note.at_ns)}: " if note.at_ns is not None else ""
    about = f" ({escape(note.about)})" if note.about else ""
    if note.kind != "command":
        return [f"- {when}{escape(note.text)}{about}"]
    printed = clean_lines(note.output)
    left_out = len(printed) - _MOST_PRINTED
    shown = [f"... {left_out} lines before", *printed[left_out:]] if left_out > 0 else printed
    return [f"- {when}`{clean(note.text)}`{about}", "", *(f"      {one}" for one in shown), ""]
