"""Rulebooks being edited: the text on disk, the typed text, and its known errors. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oncall.views.snapshot import DryRun, Problem


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
