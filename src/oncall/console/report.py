"""A diagnosis to take along: text, Markdown or JSON, with the reader's notes."""

from __future__ import annotations

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import UsageError
from oncall.core.printable import clean_lines

STYLES = ("text", "markdown", "json", "ticket")


def written(diagnosis: Diagnosis, style: str, notes: str = "", until_ns: int | None = None) -> str:
    """The report in one of STYLES; JSON, being a contract, has no place for notes. The ticket says
    how long it lasts until `until_ns`, and takes the notes as Markdown."""
    kept = "\n".join(clean_lines(notes)).strip()
    match style:
        case "json":
            from oncall.render.contract import to_json

            return to_json(diagnosis, explain=True)
        case "markdown":
            from oncall.render.markdown import to_markdown

            return to_markdown(diagnosis, explain=True) + (
                f"\n## Notes\n\n{kept}\n" if kept else ""
            )
        case "ticket":
            from oncall.render.ticket import to_ticket

            return to_ticket(diagnosis, until_ns) + (f"\n{notes.strip()}\n" if notes else "")
        case "text":
            from oncall.render.text.report import to_text

            return to_text(diagnosis) + (f"\nNotes\n\n{kept}\n" if kept else "")
    raise UsageError(f"unknown report style `{style}`; choose one of {', '.join(STYLES)}")
