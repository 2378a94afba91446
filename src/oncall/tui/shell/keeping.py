"""What is kept: the evidence in a file, notes, and both with the report for a ticket."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from textual.widget import AwaitMount

from oncall.console.evidence_queries import ArchiveSolved
from oncall.console.queries import GetReport, SaveIncident
from oncall.core.errors import OncallError
from oncall.core.printable import file_name, typed
from oncall.tui.shell.console import Console
from oncall.tui.shell.messages import Question
from oncall.tui.shell.notes import Note, NoteKind, add_note, notes_file, read_notes, to_markdown
from oncall.tui.shell.screen import screen_in_sight
from oncall.tui.widgets.prompt import Prompt
from oncall.views.words import instant

if TYPE_CHECKING:
    from oncall.console.session import Session

_LOGGED: dict[NoteKind, str] = {
    "note": "note",
    "command": "command run",
    "solved": "marked as solved",
}
_KEPT: dict[NoteKind, str] = {
    "note": "note saved",
    "command": "output saved",
    "solved": "marked as solved",
}


def problem_of_target(text: str, *suffixes: str) -> str | None:
    """Why files of that name and these suffixes cannot be written; nothing is overwritten."""
    if not text.strip():
        return "enter a name"
    base = Path(text).expanduser()
    if not base.parent.is_dir():
        return f"folder {base.parent} does not exist"
    if not os.access(base.parent, os.W_OK):
        return f"folder {base.parent} is not writable"
    for suffix in suffixes:
        if (path := with_suffix(text, suffix)).exists():
            return f"{path} already exists; choose another name"
    return None


def with_suffix(text: str, suffix: str) -> Path:
    """`text` as a path that ends in `suffix`, once."""
    return Path(text.strip().removesuffix(".oncall") + suffix).expanduser()


class Keeping(Console):
    """Save, note, export. `recording` is the file that is read, if it is one; `saved_jobs`: those
    whose evidence was saved or exported."""

    recording: Path | None
    saved_jobs: set[str | None]

    def _proposed(self) -> str:
        at = datetime.fromtimestamp(self.wall_ns() / 10**9, UTC)
        name = file_name(self.state.job or "incident")
        return f"{name}-{at:%Y%m%dT%H%M%S}"

    def _notes_file(self) -> Path:
        return notes_file(self.state.job or "", self.recording)

    def action_save(self) -> AwaitMount:
        prompt = Prompt(
            "save to",
            f"{self._proposed()}.oncall",
            hint="All evidence, for `oncall open` and `oncall diagnose`.",
            problem_of=lambda text: problem_of_target(text, ".oncall"),
        )
        return self.ask_line(prompt, lambda text: self._save(with_suffix(text, ".oncall")))

    def _save(self, path: Path) -> None:
        job = self.state.job

        def save(session: Session) -> str:
            session.ask(SaveIncident(path))
            self.saved_jobs.add(job)
            return f"saved {path}"

        self.ask(Question("save", save, self, "saving", self._written))

    def action_mark(self) -> AwaitMount:
        about = self._cursor_is_on()
        hint = f"A note about {about or 'this moment'}, for the report."
        take = partial(self._note, "note", about)
        return self.ask_line(Prompt("note", hint=hint), take)

    def _cursor_is_on(self) -> str:
        screen = screen_in_sight(self)
        return screen.cursor_is_on() if screen is not None else ""

    def _note(self, kind: NoteKind, about: str, text: str) -> None:
        """Keep what was typed; nothing, if that is blank."""
        if not (text := text.strip()):
            return
        self.keep(kind, text, about)
        if kind == "solved":
            query, label = ArchiveSolved(text, self.wall_ns()), "writing to the archive"
            self.ask(Question("archive", query, self, label, self._archived))

    def recall(self) -> None:
        """Show in the log what was noted about this incident before."""
        try:
            notes = read_notes(self._notes_file())
        except OncallError as error:
            self.write_log(str(error), "warning")
            return
        for note in notes:
            said = f"{_LOGGED[note.kind]}, {instant(note.written_ns)}: {note.text}"
            self.write_log(said)
        self._count(notes)

    def _count(self, notes: Sequence[Note]) -> None:
        """What the status line tells of them."""
        solved = [note for note in notes if note.kind == "solved"]
        written = sum(note.kind == "note" for note in notes)
        self.change(notes=written, solved=solved[-1] if solved else None)

    def keep(self, kind: NoteKind, text: str, about: str, output: str = "") -> None:
        """Keep it with the notes about this incident."""
        at_ns = self.state.cursor.shown_ns
        path = self._notes_file()
        try:
            add_note(path, Note(text, at_ns, self.wall_ns(), about, kind, output))
            self._count(read_notes(path))
        except OncallError as error:
            self.tell(str(error))
            return
        self.write_log(f"{_LOGGED[kind]}: {text}")
        self.tell(f"{_KEPT[kind]} in {path}")

    def action_solved(self) -> AwaitMount:
        """Ask what fixed it, and keep that with the incident and in the configured archive."""
        about = self._cursor_is_on()
        where = "with the incident, and in the archive if one is configured"
        hint = f"What fixed {about or 'it'}? It is kept {where}."
        return self.ask_line(Prompt("fixed by", hint=hint), partial(self._note, "solved", about))

    def _archived(self, name: str | None) -> None:
        """What was marked as solved is in the archive by that name; None: there is no archive."""
        if name is None:
            return
        said = f"in the archive as incident {name}" if name else "not archived: nothing is at fault"
        self.write_log(f"marked as solved: {said}")
        self.tell(f"marked as solved, {said}")

    def _written(self, said: str) -> None:
        self.write_log(said)
        self.tell(said)

    def action_export(self) -> AwaitMount:
        prompt = Prompt(
            "export as",
            self._proposed(),
            hint="NAME.md: a ticket of one page; NAME.svg of this screen; NAME.oncall",
            problem_of=lambda text: problem_of_target(text, ".md", ".svg", ".oncall"),
        )
        return self.ask_line(prompt, self._export)

    def _since_ns(self) -> int | None:
        """When what is shown of a running job began, Unix ns: its notes outlive an incident. Those
        of a recording are all about it."""
        snapshot = self.state.snapshot
        if snapshot is None or not self.state.live:
            return None
        began = (snapshot.moment.first_ns, *(one.at_ns for one in snapshot.diagnosis.findings))
        return min((at_ns for at_ns in began if at_ns is not None), default=None)

    def _export(self, name: str) -> None:
        try:
            notes = to_markdown(read_notes(self._notes_file()), self._since_ns())
        except OncallError as error:
            self.tell(str(error))
            return
        report, picture, evidence = (with_suffix(name, end) for end in (".md", ".svg", ".oncall"))
        seen, job = self.export_screenshot(), self.state.job

        def export(session: Session) -> str:
            session.ask(SaveIncident(evidence))
            picture.write_text(seen)
            shown = f"![The console at this moment]({quote(picture.name)})\n\n"
            files = f"Evidence: `{typed('oncall open {file}', file=evidence.name)}`\n"
            said = session.ask(GetReport("ticket", notes))
            report.write_text(f"{said}\n{shown}{files}")
            self.saved_jobs.add(job)
            return f"exported {report}, with {picture.suffix} and {evidence.suffix} beside it"

        self.ask(Question("export", export, self, "exporting", self._written))
