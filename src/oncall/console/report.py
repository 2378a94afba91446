"""A diagnosis to take along: text, Markdown or JSON, with the reader's notes; and what fixed it, in
the configured archive, so that later reports mention it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncall.archive.configuration import read_configuration
from oncall.archive.history import hosts_of
from oncall.archive.incidents import rows_of
from oncall.archive.store import Archive
from oncall.core.diagnosis import Diagnosis
from oncall.core.errors import UsageError
from oncall.core.printable import clean, clean_lines
from oncall.render.contract import document

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.evidence.incident import Incident

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
            from oncall.render.markdown import to_ticket

            return to_ticket(diagnosis, until_ns) + (f"\n{notes.strip()}\n" if notes else "")
        case "text":
            from oncall.render.text.report import to_text

            return to_text(diagnosis) + (f"\nNotes\n\n{kept}\n" if kept else "")
    raise UsageError(f"unknown report style `{style}`; choose one of {', '.join(STYLES)}")


def keep_solved(
    incident: Incident, diagnosis: Diagnosis, fixed_by: str, written_ns: int
) -> str | None:
    """Add the diagnosis to the configured archive, with what fixed it. The incident's name there,
    empty if nothing is at fault in what is shown; None without a configured archive. Raises
    BadInput, UsageError or Unreadable if the archive cannot take it."""
    configured = read_configuration()
    if configured.place is None:
        return None
    if not diagnosis.faults:
        return ""
    archive = Archive.at(configured.place, create=True)
    rows = rows_of(document(diagnosis), configured.cluster, written_ns, hosts_of(incident))
    archive.add(rows)
    name = str(rows[0]["incident"])
    archive.solved(name, clean(fixed_by), written_ns)
    return name
