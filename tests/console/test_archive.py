"""The archive of former incidents that a console is configured to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from oncall.archive.history import former_faults
from oncall.archive.store import Archive
from oncall.console.evidence_queries import ArchiveSolved
from oncall.console.queries import GetSnapshot

from .conftest import Open


def test_an_archive_that_cannot_be_read_is_a_note(
    recorded: Callable[[str], Path],
    opened: Open,
    tmp_path: Path,
    configured: Callable[[str], Path],
) -> None:
    configured(f'[archive]\nplace = "{tmp_path}/nowhere"\n')
    [note] = [
        one
        for one in opened(recorded("hang")).ask(GetSnapshot()).diagnosis.notes
        if one.startswith("without the archive of former incidents: ")
    ]
    assert "nowhere" in note


def test_what_fixed_an_incident_is_in_the_next_diagnosis(
    recorded: Callable[[str], Path],
    opened: Open,
    tmp_path: Path,
    configured: Callable[[str], Path],
) -> None:
    session = opened(recorded("hang"))
    session.ask(GetSnapshot())
    assert session.ask(ArchiveSolved("restarted rank 5", 1)) is None  # none is configured
    configured(f'[archive]\nplace = "{tmp_path}/archive"\n')
    name = session.ask(ArchiveSolved("restarted rank 5", 2))
    assert name == session.ask(ArchiveSolved("replaced the GPU", 3))  # the last note counts
    former = former_faults(Archive.at(f"{tmp_path}/archive"), "default", {})
    assert {one.fixed_by for one in former} == {"replaced the GPU"}


def test_what_is_not_at_fault_is_not_archived(
    recorded: Callable[[str], Path],
    opened: Open,
    tmp_path: Path,
    configured: Callable[[str], Path],
) -> None:
    configured(f'[archive]\nplace = "{tmp_path}/archive"\n')
    session = opened(recorded("healthy"))
    session.ask(GetSnapshot())
    assert session.ask(ArchiveSolved("luck", 1)) == ""
    assert not (tmp_path / "archive").exists()
