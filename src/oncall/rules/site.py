"""The rulebooks in force: the shipped ones, the site's above them, then those of --rules.

The site's lie in one folder (oncall.rules.site_folder) for every front end. A file of the site
that is wrong is set aside: it is reported, and what it would have replaced stays in force. Nobody
should learn at 03:10 that a slip of last week keeps all other rules from running.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from oncall.core.diagnosis import SkippedRule
from oncall.core.errors import Problem, RulebookError, UsageError
from oncall.rules.engine.check import Checker, problems_of
from oncall.rules.language.load import add_folder, apply_overrides, load_rulebooks, shipped_folder
from oncall.rules.language.positions import read_source
from oncall.rules.language.rulebook import Rulebook

_NAME = re.compile(r"(?m)^(?:rulebook|relation):\s*[\"']?([a-z][a-z0-9_-]*)")


@dataclass(frozen=True)
class SetAside:
    """A file of the site that is wrong. `name`: the rulebook that it is or changes, as far as known
    ; `instead`: one of that name is in force without it."""

    name: str
    path: str
    problems: tuple[Problem, ...]
    instead: bool

    @property
    def description(self) -> str:
        """What is wrong first, and what follows from it, in a line."""
        first = self.problems[0]
        more = len(self.problems) - 1
        text = f"{first.path}:{first.line}:{first.column}: {first.message}"
        text += f" (and {more} more)" if more else ""
        return f"{text}; {self.name} runs without this file" if self.instead else text

    @property
    def skipped(self) -> SkippedRule:
        return SkippedRule(self.name, (), self.description, set_aside=True)


@dataclass(frozen=True)
class Rulebooks:
    """What is in force, and which of the site's files are not."""

    in_force: tuple[Rulebook, ...]
    set_aside: tuple[SetAside, ...] = ()

    @property
    def skipped(self) -> tuple[SkippedRule, ...]:
        """What was set aside, as a diagnosis reports it."""
        return tuple(one.skipped for one in self.set_aside)


def read_rulebooks(
    site: Path | None,
    more: Sequence[Path] = (),
    overrides: Mapping[str, str] | None = None,
    *,
    strict: bool = True,
) -> Rulebooks:
    """The rulebooks in force. `site` None leaves the site's out; a folder that is not there has
    none. `more` and `overrides` are what the command line gives: `strict`, `more` must pass
    `oncall rules check` (tests are not asked for), else what is wrong there is set aside too.

    Raises RulebookError for `more`, UsageError for `more` and `overrides`.
    """
    books = {book.name: book for book in load_rulebooks([shipped_folder()])}
    problems: list[Problem] = []
    if site is not None and (site.exists() or site.is_symlink()):
        books, problems = _with_site(books, site)
    if strict:
        wrong = problems_of(more)
        if wrong:
            raise RulebookError(wrong)
        books = {book.name: book for book in load_rulebooks(more, books)}
    else:
        problems += [problem for folder in more for problem in _leniently(books, folder)]
    in_force = apply_overrides(list(books.values()), overrides or {})
    return Rulebooks(tuple(in_force), _set_aside(problems, books))


def _with_site(
    shipped: Mapping[str, Rulebook], folder: Path
) -> tuple[dict[str, Rulebook], list[Problem]]:
    """The rulebooks with the site's above them."""
    books = dict(shipped)
    problems = _leniently(books, folder)
    for name, book in books.items():
        before = shipped.get(name)
        if before is None or (book.path, book.overridden_by) != (before.path, before.overridden_by):
            file = book.overridden_by[-1] if book.overridden_by else book.path
            replaced = None if before is None or book.path == before.path else before
            books[name] = replace(book, site_file=file, instead_of=replaced)
    return books, problems


def _leniently(books: dict[str, Rulebook], folder: Path) -> list[Problem]:
    """Put a folder's rulebooks above others, but those that cannot run."""
    with ExitStack() as stack:
        checkers: list[Checker] = []

        def breaking(book: Rulebook) -> list[Problem]:
            if not checkers:  # takes longer than reading, and most sites only change values
                checkers.append(stack.enter_context(Checker()))
            return checkers[0].breaking(book)

        try:
            return add_folder(books, folder, breaking)
        except UsageError as error:
            return [Problem(str(folder), 1, 1, str(error))]
        except OSError as error:
            return [Problem(str(folder), 1, 1, f"cannot be read: {error.strerror}")]


def _set_aside(problems: Sequence[Problem], books: Mapping[str, Rulebook]) -> tuple[SetAside, ...]:
    by_path: dict[str, list[Problem]] = {}
    for problem in problems:
        by_path.setdefault(problem.path, []).append(problem)
    found = []
    for path, wrong in by_path.items():
        name = _name_in(Path(path))
        found.append(SetAside(name, path, tuple(wrong), name in books))
    return tuple(found)


def _name_in(path: Path) -> str:
    """The rulebook or relation that a file speaks of, its own name if it does not say."""
    said = _NAME.search(read_source(path)[0].text)
    return said[1] if said else path.name.partition(".")[0]
