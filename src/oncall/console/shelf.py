"""The rulebooks of a session: which are in force, their texts, and where a site's own are written.

Shipped rulebooks come first, then the site's folder, then those of the command line; a later one
overrides. What is saved goes to the site's folder, or stays where it is if it is a site's already:
a shipped file is never written.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from oncall.console.questions import outcome_of
from oncall.console.world import Problem, RuleLine, Table, World
from oncall.errors import RulebookError, UsageError
from oncall.report.words import skipped_phrase
from oncall.rules.check import Checker
from oncall.rules.load import apply_overrides, load_rulebooks, parse, shipped_folder
from oncall.rules.rulebook import Rulebook
from oncall.rules.starter import starter_text
from oncall.rules.template import nearest
from oncall.rules.testing import run_tests
from oncall.rules.tests_file import tests_of


def site_folder() -> Path:
    """$XDG_CONFIG_HOME/oncall/rules: rulebooks of this user, in force wherever a console is."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "oncall" / "rules"


class Shelf:
    """Rulebooks in force. `rulebooks` is replaced whole, never changed."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        overrides: Mapping[str, str] | None = None,
        site: Path | None = None,
    ) -> None:
        """`folders` and `overrides` as on the command line. Raises RulebookError, UsageError."""
        self._folders = tuple(folders)
        self._overrides = dict(overrides or {})
        self._site = site or site_folder()
        self._checker: Checker | None = None
        self._read: dict[Path, str] = {}  # file -> digest of what the reader has seen
        self.rulebooks = self._load()

    def _load(self) -> tuple[Rulebook, ...]:
        site = [self._site] if self._site.is_dir() else []
        books = load_rulebooks([shipped_folder(), *site, *self._folders])
        return tuple(apply_overrides(books, self._overrides))

    def named(self, name: str) -> Rulebook:
        """The rulebook of that name. Raises UsageError."""
        by_name = {book.name: book for book in self.rulebooks}
        if name not in by_name:
            raise UsageError(f"no rulebook `{name}`{nearest(name, by_name)}")
        return by_name[name]

    def lines(self, world: World | None) -> tuple[RuleLine, ...]:
        """The rulebooks, with what came of them in a world."""
        return tuple(self._line(book, world) for book in self.rulebooks)

    def _line(self, book: Rulebook, world: World | None) -> RuleLine:
        outcome, seconds = "", None
        if not book.enabled:
            outcome = "switched off"
        elif world is not None:
            diagnosis = world.diagnosis
            why = [
                skipped_phrase(rule).partition(": ")[2]
                for rule in diagnosis.coverage.skipped_rules
                if rule.rule.split(".")[0] == book.name
            ]
            outcome = outcome_of(book.name, diagnosis.findings, why, diagnosis.checked)
            seconds = world.timings_s.get(book.name)
        return RuleLine(
            name=book.name,
            title=book.book.title,
            status=book.book.status,
            path=book.path,
            enabled=book.enabled,
            shipped=_is_shipped(Path(book.path)),
            outcome=outcome,
            seconds=seconds,
        )

    # ----------------------------------------------------------------- reading

    def text(self, name: str) -> str:
        """The YAML as it is in the file now. Raises UsageError if it cannot be read."""
        path = Path(self.named(name).path)
        try:
            content = path.read_bytes()
            text = content.decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error
        self._read[path] = _digest(content)
        return text

    def new(self, name: str) -> str:
        """A small rulebook that passes its check, to start from. Raises UsageError."""
        if any(book.name == name for book in self.rulebooks):
            raise UsageError(f"there is a rulebook `{name}` already; choose another name")
        return starter_text(name)

    def check(self, text: str) -> tuple[Problem, ...]:
        """Everything that is wrong with a rulebook's text."""
        if self._checker is None:
            self._checker = Checker()
        found = self._checker.check(text, "rulebook")
        return tuple(Problem(one.line, one.column, one.message) for one in found)

    def changed(self, name: str, text: str) -> Rulebook:
        """The rulebook that `text` spells, with the values that the site and the command line
        give its parameters. Raises RulebookError, UsageError."""
        book, problems = parse(text, f"{name}.yaml")
        if book is None:
            raise RulebookError(problems)
        present = {one.name: one for one in self.rulebooks}.get(book.name)
        if present is None:
            return book
        given = {
            param: value
            for param, value in present.params.items()
            if param in book.params
            and value.dimension == book.params[param].dimension
            and value != _written(present, param)
        }
        return replace(book.with_params(given, ""), overridden_by=present.overridden_by)

    def test(self, name: str) -> Table:
        """The tests beside the rulebook: name, pass or FAIL, and what differs.

        Raises RulebookError where the rulebook or its tests cannot be read.
        """
        path = tests_of(Path(self.named(name).path))
        results = list(run_tests(path)) if path.is_file() else []
        rows = tuple(
            (one.name, "pass" if one.passed else "FAIL", one.report.strip("\n")) for one in results
        )
        return Table(("test", "result", "difference"), rows, len(rows))

    # ----------------------------------------------------------------- writing

    def save(self, name: str, text: str) -> Path:
        """Write a rulebook to the site's folder, and put it in force; returns the file.

        The text is written as it is, comments and all, in one step. Raises RulebookError where it
        does not parse, UsageError where the file has changed since it was read, or cannot be
        written.
        """
        book, problems = parse(text, f"{name}.yaml")
        if book is None:
            raise RulebookError(problems)
        if book.name != name:
            raise UsageError(f"the text is of `{book.name}`; save it under that name")
        path = self._place(name)
        self._refuse_what_changed(path)
        before = path.read_bytes() if path.exists() else None
        _write(path, text.encode())
        try:
            self.rulebooks = self._load()
        except (RulebookError, UsageError):
            # Together with the site's other files it is wrong: they stay in force as they were.
            _restore(path, before)
            raise
        self._read[path] = _digest(text.encode())
        return path

    def _place(self, name: str) -> Path:
        present = {book.name: Path(book.path) for book in self.rulebooks}.get(name)
        if present is not None and not _is_shipped(present):
            return present
        return self._site / f"{name}.yaml"

    def _refuse_what_changed(self, path: Path) -> None:
        if not path.exists():
            return
        try:
            digest = _digest(path.read_bytes())
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}") from error
        if self._read.get(path) != digest:
            raise UsageError(
                f"{path} was changed by somebody else since it was read here; it stays as it is: "
                "copy your text, open the rulebook again, and put the two together"
            )

    def close(self) -> None:
        """Let go of what checking needs."""
        if self._checker is not None:
            self._checker.__exit__(None, None, None)
            self._checker = None


def _is_shipped(path: Path) -> bool:
    return path.resolve().is_relative_to(shipped_folder().resolve())


def _written(book: Rulebook, param: str) -> object:
    """The value that the rulebook's own file gives a parameter."""
    parsed, _ = parse(book.text, book.path)
    return None if parsed is None else parsed.params.get(param)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes) -> None:
    """The whole file or nothing: a temporary one beside it, then a rename."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            part = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                part.chmod(mode)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _restore(path: Path, before: bytes | None) -> None:
    if before is None:
        path.unlink(missing_ok=True)
    else:
        _write(path, before)
