"""A diagnosis to take along: text, Markdown or JSON, with the reader's notes."""

from __future__ import annotations

from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import UsageError
from oncall.core.printable import clean_lines

STYLES = ("text", "markdown", "json")


def written(diagnosis: Diagnosis, style: str, notes: str = "") -> str:
    """The report in one of STYLES; JSON, being a contract, has no place for notes."""
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
        case "text":
            from oncall.render.text.report import to_text

            return to_text(diagnosis) + (f"\nNotes\n\n{kept}\n" if kept else "")
    raise UsageError(f"unknown report style `{style}`; choose one of {', '.join(STYLES)}")
