"""The rulebooks of a session: which are in force, their texts, and where a site's own are written.

Shipped rulebooks come first, then the site's folder, then those of the command line; a later one
overrides. What is saved goes to the site's folder, or stays where it is if it is a site's already:
a shipped file is never written. Files are watched: what somebody changes, or breaks, shows with
the next snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from oncall.console.writing import RulebookFiles, replace_file
from oncall.core.diagnosis import Diagnosis, Severity
from oncall.core.errors import OncallError, RulebookError, UsageError
from oncall.core.errors import Problem as Placed
from oncall.rules.authoring.starter import starter_tests, starter_text
from oncall.rules.authoring.testing import run_tests_of
from oncall.rules.engine.check import Checker
from oncall.rules.language.load import parse, parse_override, rulebook_files, shipped_folder
from oncall.rules.language.rulebook import Rulebook, called
from oncall.rules.language.template import nearest
from oncall.rules.language.tests_file import tests_of
from oncall.rules.site import Rulebooks, SetAside, read_rulebooks
from oncall.views.coverage_words import skipped_phrase
from oncall.views.snapshot import Problem, RuleLine, Snapshot, Table
from oncall.views.words import GLYPHS

_STARTERS_VERDICT = "HOT"


class RulebookStore:
    """Rulebooks in force. What is read is replaced whole, never changed."""

    def __init__(
        self,
        folders: Sequence[Path] = (),
        overrides: Mapping[str, str] | None = None,
        site: Path | None = None,
    ) -> None:
        """`folders` and `overrides` as on the command line; `site` None: the site's rulebooks are
        left out, and nothing can be saved there. Raises RulebookError, UsageError."""
        self._folders = tuple(folders)
        self._overrides = dict(overrides or {})
        self._site = site
        self._checker: Checker | None = None
        self._files = RulebookFiles()
        self._changing = threading.RLock()  # snapshots and questions have a thread each
        self._stamps = self._stamps_now()
        self._read = read_rulebooks(site, folders, overrides)

    def read(self) -> Rulebooks:
        """What is in force now, files that changed read again."""
        with self._changing:
            stamps = self._stamps_now()
            if stamps != self._stamps:
                self._stamps = stamps
                # A parameter of the command line may be of no rulebook any more: all stays then.
                with suppress(OncallError):
                    self._read = self._read_again()
            return self._read

    def _read_again(self) -> Rulebooks:
        return read_rulebooks(self._site, self._folders, self._overrides, strict=False)

    def _stamps_now(self) -> tuple[tuple[str, int], ...]:
        """When each file of the site and of the command line was written."""
        folders = [*([self._site] if self._site is not None else []), *self._folders]
        return tuple((str(path), _written_ns(path)) for each in folders for path in _files(each))

    @property
    def rulebooks(self) -> tuple[Rulebook, ...]:
        return self._read.in_force

    def named(self, name: str) -> Rulebook:
        """The rulebook of that name, or that took its place. Raises UsageError."""
        by_name = self._by_name()
        found = called(name, by_name)
        if found is None:
            raise UsageError(f"no rulebook `{name}`{nearest(name, by_name)}")
        return found

    def _by_name(self) -> dict[str, Rulebook]:
        return {book.name: book for book in self.rulebooks}

    def _broken(self, name: str) -> SetAside | None:
        """The file of that rulebook that is wrong, if there is one."""
        return next((one for one in self._read.set_aside if one.name == name), None)

    # ----------------------------------------------------------------- listing

    def lines(self, snapshot: Snapshot | None) -> tuple[RuleLine, ...]:
        """The rulebooks with their results in a snapshot, and the site's files that are wrong."""
        self.read()
        return (*(self._line(book, snapshot) for book in self.rulebooks), *self._alone())

    def _line(self, book: Rulebook, snapshot: Snapshot | None) -> RuleLine:
        outcome, why_skipped, seconds = "" if book.enabled else "off", "", None
        if book.enabled and snapshot is not None:
            outcome, why_skipped = _outcome(book.name, snapshot.diagnosis)
            seconds = snapshot.timings_s.get(book.name)
        broken = self._broken(book.name)
        path = book.path if broken is None else broken.path
        return RuleLine(
            name=book.name,
            title=book.book.title,
            status=book.book.status,
            path=path,
            enabled=book.enabled,
            shipped=_is_shipped(Path(book.path)),
            outcome=outcome,
            seconds=seconds,
            broken="" if broken is None else _in_a_line(broken),
            changed_by=book.overridden_by,
            written_ns=_written_ns(Path(path)),
            verdicts=tuple(book.book.verdicts),
            why_skipped=why_skipped,
            worst=_worst(book.name, snapshot.diagnosis) if snapshot is not None else None,
        )

    def _alone(self) -> Iterator[RuleLine]:
        """Files that are wrong, of rulebooks that are not there without them."""
        names = set(self._by_name())
        for one in self._read.set_aside:
            if one.name not in names:
                names.add(one.name)
                yield RuleLine(
                    name=one.name,
                    title="",
                    status="broken",
                    path=one.path,
                    enabled=True,
                    shipped=False,
                    outcome="",
                    seconds=None,
                    broken=_in_a_line(one),
                    written_ns=_written_ns(Path(one.path)),
                )

    # ----------------------------------------------------------------- reading

    def text(self, name: str) -> str:
        """The YAML as it is in the file now, which may be wrong. Raises UsageError if it cannot be
        read."""
        broken = self._broken(name)
        return self._files.read(Path(self.named(name).path if broken is None else broken.path))

    def new(self, name: str) -> str:
        """A small rulebook that passes its check, to start from. Raises UsageError."""
        if name in self._by_name() or self._broken(name) is not None:
            raise UsageError(f"rulebook `{name}` already exists; choose another name")
        return starter_text(name)

    def check(self, text: str) -> tuple[Problem, ...]:
        """Everything that is wrong with the text of a rulebook or an override."""
        changed, found = parse_override(text, "rulebook", self._by_name())
        if changed is None and not found:
            found = self._checked(text, "rulebook")
        return tuple(Problem(one.line, one.column, one.message) for one in found)

    def _checked(self, text: str, path: str) -> list[Placed]:
        if self._checker is None:
            self._checker = Checker()
        return self._checker.check(text, path)

    def tried(self, name: str, text: str) -> Rulebook:
        """As `changed`, of a text that passes its check. Raises RulebookError, UsageError."""
        changed = self.changed(name, text)
        if changed.text == text and (found := self._checked(text, f"{name}.yaml")):
            raise RulebookError(found)
        return changed

    def changed(self, name: str, text: str) -> Rulebook:
        """The rulebook that `text` spells or changes, with the values that the site and the command
        line give its parameters. Raises RulebookError, UsageError."""
        by_name = self._by_name()
        changed, problems = parse_override(text, f"{name}.yaml", by_name)
        if changed is not None:
            # A failure is reported, and nothing takes its place.
            return replace(changed, site_file="", instead_of=None)
        book, found = parse(text, f"{name}.yaml") if not problems else (None, problems)
        if book is None:
            raise RulebookError(found)
        present = by_name.get(book.name)
        if present is None:
            return book
        given = {
            param: value
            for param, value in present.params.items()
            if book.takes(param, value) and value != _written(present, param)
        }
        changed = book.with_relation_params(
            {**present.of_relations, **book.of_relations}, ""
        ).with_params(given, "")
        return replace(changed, overridden_by=present.overridden_by)

    def test(self, name: str, text: str) -> Table:
        """The tests of the rulebook on a text of it: name, pass or FAIL, and what differs.

        They lie beside its file, or beside the shipped one of that name. Raises RulebookError
        where text or tests are wrong.
        """
        book = self.tried(name, text)
        found = self._tests(name, book)
        results = run_tests_of(book, *found) if found is not None else ()
        rows = tuple(
            (one.name, "pass" if one.passed else "FAIL", one.report.strip("\n")) for one in results
        )
        if not rows:
            where = tests_of(self._place(name))
            raise UsageError(f"{name} has no tests yet; add them in {where}")
        return Table(("test", "result", "difference"), rows, len(rows))

    def _tests(self, name: str, book: Rulebook) -> tuple[str, str] | None:
        """The text of a rulebook's tests, and where it is from."""
        present = self._by_name().get(name)
        places = [tests_of(Path(present.path))] if present is not None else []
        places.append(tests_of(shipped_folder() / f"{name}.yaml"))
        for path in places:
            if path.is_file():
                return self._files.read(path), str(path)
        if _STARTERS_VERDICT in book.book.verdicts:
            return starter_tests(name), f"{name}.test.yaml"
        return None

    # ----------------------------------------------------------------- writing

    def save(self, name: str, text: str) -> Path:
        """Write a rulebook to the site's folder, and put it in force; returns the file.

        The text is written as it is, comments and all, in one step, with its tests beside it if
        there are none. Raises RulebookError where it does not parse, UsageError where the file has
        changed since it was read, or cannot be written.
        """
        with self._changing:
            book = self.changed(name, text)
            if book.name != name and self._broken(name) is None:
                raise UsageError(f"the text is of rulebook `{book.name}`; save it under that name")
            path = self._place(name)
            self._files.refuse_what_changed(path)
            before = path.read_bytes() if path.exists() else None
            tests = self._tests(name, book)
            self._files.write(path, text)
            try:
                self._put_in_force()
            except OncallError:
                # Together with other files it is wrong: they stay in force as they were.
                replace_file(path, before)
                raise
            if tests is not None and book.path == f"{name}.yaml":
                _write_beside(path, tests[0])
            self._stamps = self._stamps_now()
            return path

    def _put_in_force(self) -> None:
        """Raises RulebookError where a file is wrong that was not before."""
        known = {one.path for one in self._read.set_aside}
        read = self._read_again()
        worse: list[Placed] = [
            problem for one in read.set_aside if one.path not in known for problem in one.problems
        ]
        if worse:
            raise RulebookError(worse)
        self._read = read

    def _place(self, name: str) -> Path:
        """Where a rulebook is written."""
        if (broken := self._broken(name)) is not None:
            return Path(broken.path)
        present = self._by_name().get(name)
        if present is not None and not _is_shipped(Path(present.path)):
            return Path(present.path)
        if self._site is None:
            raise UsageError(
                "the console runs without site rulebooks (--no-site-rules), so it cannot save "
                "there; the draft is kept"
            )
        path = self._site / f"{name}.yaml"
        if present is not None and str(path) in present.overridden_by:
            path = self._site / f"{name}-rulebook.yaml"  # the site's values stay above it
        return path

    def close(self) -> None:
        """Close what checking needs."""
        if self._checker is not None:
            self._checker.__exit__(None, None, None)
            self._checker = None


def _worst(name: str, diagnosis: Diagnosis) -> Severity | None:
    """The worst severity of what a rulebook found."""
    found = {finding.severity for finding in diagnosis.findings if finding.rulebook == name}
    return next((one for one in GLYPHS if one in found), None)


def _outcome(name: str, diagnosis: Diagnosis) -> tuple[str, str]:
    """What a rulebook found, in a word or two, and why it was skipped, in full."""
    if count := sum(finding.rulebook == name for finding in diagnosis.findings):
        return f"{count} finding" + ("s" if count > 1 else ""), ""
    if name in diagnosis.pending:
        return "not yet run", "it takes long, and runs once the time cursor rests"
    for rule in diagnosis.coverage.skipped_rules:
        if rule.rule.split(".")[0] == name and not rule.set_aside:
            return "no data" if rule.missing else "not run", skipped_phrase(rule).partition(": ")[2]
    if name in diagnosis.checked:
        return "nothing", ""
    return "not run", "nothing that it judges was recorded"


def _is_shipped(path: Path) -> bool:
    return path.resolve().is_relative_to(shipped_folder().resolve())


def _written(book: Rulebook, param: str) -> object:
    """The value that the rulebook's own file gives a parameter."""
    parsed, _ = parse(book.text, book.path)
    return None if parsed is None else parsed.params.get(param)


def _in_a_line(one: SetAside) -> str:
    """`line 17: unknown column ... (and 2 more)`."""
    first = one.problems[0]
    more = f" (and {len(one.problems) - 1} more)" if len(one.problems) > 1 else ""
    return f"line {first.line}: {first.message}{more}"


def _files(folder: Path) -> list[Path]:
    try:
        return rulebook_files(folder)
    except (OSError, UsageError):
        return [folder]


def _written_ns(path: Path) -> int:
    """When it was written; 0 if it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _write_beside(path: Path, tests: str) -> None:
    """The tests of a rulebook that has just been written, if it has none."""
    if not tests_of(path).exists():
        replace_file(tests_of(path), tests.encode())
