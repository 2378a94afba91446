"""Read rulebooks: every problem at once, each with its place; sites and options override values.

parse(text, path)            one rulebook, or what is wrong with it    (editors, TUI)
load_rulebooks(folders)      shipped, then the sites' in order          (diagnose)
apply_overrides(books, ...)  --param hang.barrier_after=1h, of a rulebook or of a relation
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from oncall.core.errors import Problem, RulebookError, UsageError
from oncall.core.units import Quantity, parse_quantity
from oncall.evidence.parameters import all_parameters, same_dimension
from oncall.evidence.parameters import replacement as of_relation
from oncall.rules.language.positions import Fault, Source, aliases, read_source, read_yaml
from oncall.rules.language.rulebook import Rulebook, called
from oncall.rules.language.rulebook_file import (
    FORMAT,
    OverrideFile,
    Param,
    Reference,
    RelationFile,
    RulebookFile,
)
from oncall.rules.language.shape import read_record
from oncall.rules.language.structure import faults_of
from oncall.rules.language.template import nearest

_Part = Rulebook | OverrideFile | RelationFile  # what a file may hold
TEST_SUFFIX = ".test.yaml"
_OVERRIDE = re.compile(r"\boverride[\"']?\s*:")


def shipped_folder() -> Path:
    """Where the rulebooks that come with oncall lie: in the wheel, or beside src/ in a checkout."""
    package = Path(__file__).parents[2] / "rulebooks"
    return package if package.is_dir() else Path(__file__).parents[4] / "rulebooks"


@cache
def _reviewed_texts() -> frozenset[str]:
    """The rulebooks that come with oncall, each tested before it is released."""
    return frozenset(path.read_text(encoding="utf-8") for path in rulebook_files(shipped_folder()))


def is_reviewed(rulebook: Rulebook) -> bool:
    """Whether the rulebook is, letter by letter, one that comes with oncall; its values may be
    the site's."""
    return rulebook.text in _reviewed_texts()


def rulebook_files(folder: Path) -> list[Path]:
    """The rulebook and override files of a folder, tests left out; a file stands for itself."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such file or folder of rulebooks")
    found = (path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
    # What begins with a dot is an editor's: a lock, a copy of what is being written.
    return sorted(
        path
        for path in found
        if not path.name.endswith(TEST_SUFFIX) and not path.name.startswith(".")
    )


def is_override(path: Path) -> bool:
    """Whether the file changes another rulebook; False if it cannot be read as YAML."""
    source, problems = read_source(path)
    data = None if problems else read_yaml(source)[0]
    return isinstance(data, dict) and "override" in data


def parse(text: str, path: str) -> tuple[Rulebook | None, list[Problem]]:
    """The rulebook that `text` spells, or None and every problem found without running SQL."""
    source = Source(path, text)
    data, problems = read_yaml(source)
    if data is None and problems:
        return None, problems
    if isinstance(data, dict) and "override" in data:
        return None, [
            *problems,
            source.place(Fault(("override",), "an override file, not a rulebook", on_key=True)),
        ]
    rulebook, found = _rulebook(source, data)
    problems += found
    return (None if problems else rulebook), problems


def parse_leniently(text: str, path: str) -> tuple[Rulebook | None, list[Problem]]:
    """As `parse`, but with a rulebook as far as one can be made out, so that a check can go on
    to its SQL and report everything at once. It must not be run unless there are no problems."""
    source = Source(path, text)
    data, problems = read_yaml(source)
    if not isinstance(data, dict) or "override" in data:
        return parse(text, path)
    rulebook, found = _rulebook(source, data)
    return rulebook, [*problems, *found]


def parse_override(
    text: str, path: str, books: Mapping[str, Rulebook]
) -> tuple[Rulebook | None, list[Problem]]:
    """The rulebook among `books` that the text of an override changes, as changed; or None and
    what is wrong. None and nothing: the text is no override."""
    if not _OVERRIDE.search(text):
        return None, []  # most texts are none, and reading YAML takes time while one types
    source = Source(path, text)
    data, problems = read_yaml(source)
    if not isinstance(data, dict) or "override" not in data or "relation" in data:
        return None, []
    faults: list[Fault] = []
    part = read_record(OverrideFile, data, (), faults)
    problems += source.place_all(faults)
    changed = dict(books)
    problems += [] if problems else _override(changed, source, part)
    return (None if problems else changed[part.rulebook]), problems


def load_rulebooks(
    folders: Iterable[Path], above: Mapping[str, Rulebook] | None = None
) -> list[Rulebook]:
    """All rulebooks of the folders, by name; a later folder overrides or replaces an earlier, and
    all of them those `above` which they are put.

    Raises RulebookError with the problems of every file, UsageError for a folder that is none.
    """
    books = dict(above or {})
    problems = [problem for folder in folders for problem in add_folder(books, folder)]
    if problems:
        raise RulebookError(problems)
    return list(books.values())


def add_folder(
    books: dict[str, Rulebook],
    folder: Path,
    check: Callable[[Rulebook], list[Problem]] = lambda _: [],
) -> list[Problem]:
    """Put a folder's rulebooks among `books`, over those of the same names; then its overrides.

    A file that is wrong, or of which `check` finds something wrong, is left out as a whole; what
    is wrong is returned. Raises UsageError for a folder that is none.
    """
    here: dict[str, str] = {}
    overrides: list[tuple[Source, OverrideFile | RelationFile]] = []
    problems: list[Problem] = []
    for path in rulebook_files(folder):
        source, part, found = _read_file(path)
        if isinstance(part, OverrideFile | RelationFile):
            overrides.append((source, part))
        elif part is not None:
            if part.name in here:
                message = f"the rulebook `{part.name}` is also in {here[part.name]}"
                found = [source.place(Fault(("rulebook",), message))]
            found = found or check(part)
            if not found:
                here[part.name] = str(path)
                books[part.name] = part
        problems += found
    for source, override in overrides:
        if isinstance(override, RelationFile):
            problems += _override_relation(books, source, override)
        else:
            problems += _override(books, source, override)
    books |= _agreeing(books)
    return problems


def load_file(path: Path) -> Rulebook:
    """One rulebook. Raises RulebookError with every problem of the file."""
    _, part, problems = _read_file(path)
    if problems or not isinstance(part, Rulebook):
        raise RulebookError(problems or [Problem(str(path), 1, 1, "an override, not a rulebook")])
    return part


def apply_overrides(books: Sequence[Rulebook], overrides: Mapping[str, str]) -> list[Rulebook]:
    """The rulebooks with values from the command line: `hang.barrier_after` -> `1 h`. A name that
    is both a rulebook's and a relation's means the rulebook's.

    Raises UsageError for a name that does not exist, a value of another dimension, or a relation
    that is computed on nodes.
    """
    by_name = _agreeing({book.name: book for book in books})
    for target, text in overrides.items():
        name, _, param = target.partition(".")
        what, by = f"`{target}`", f"--param {target}"
        book = called(name, by_name)
        if book is not None and param in book.params:
            values = {param: replacement(book, param, what, text)}
            _replace(by_name, book.name, values, by)
        elif target in all_parameters():
            _replace_of_relations(by_name, {target: of_relation(target, what, text)}, by)
        else:
            ours = [f"{book.name}.{param}" for book in books for param in book.params]
            near = nearest(target, [*ours, *all_parameters()])
            raise UsageError(
                f"no rulebook or relation has the parameter `{target}`{near}; "
                "`oncall rules show NAME` lists them"
            )
    return list(by_name.values())


def replacement(
    book: Rulebook, param: str, what: str, written: bool | int | float | str
) -> Quantity:
    """The new value of a rulebook's parameter. Raises UsageError if its dimension is another one,
    or if it is that of a relation which is computed on nodes."""
    if param in book.references:
        return of_relation(book.references[param], what, written)
    return same_dimension(what, written, book.params[param])


def _replace(
    books: dict[str, Rulebook], name: str, values: Mapping[str, Quantity], by: str
) -> None:
    """Replace values of one of the rulebooks; those of relations in all of them."""
    refers = books[name].references
    books[name] = books[name].with_params(values, by)
    shared = {refers[param]: value for param, value in values.items() if param in refers}
    _replace_of_relations(books, shared, by)


def _replace_of_relations(
    books: dict[str, Rulebook], values: Mapping[str, Quantity], by: str
) -> None:
    for name, book in books.items() if values else ():
        books[name] = book.with_relation_params(values, by)


def _agreeing(books: Mapping[str, Rulebook]) -> dict[str, Rulebook]:
    """The rulebooks with the same values for relations: one read later lacks what was replaced."""
    shared = {of: value for book in books.values() for of, value in book.of_relations.items()}
    return {
        name: book if book.of_relations == shared else book.with_relation_params(shared, "")
        for name, book in books.items()
    }


# ------------------------------------------------------------------- one file


def _read_file(path: Path) -> tuple[Source, _Part | None, list[Problem]]:
    source, problems = read_source(path)
    if problems:
        return source, None, problems
    part, found = _read_text(source.path, source.text)
    return source, part, list(found)


@lru_cache(maxsize=256)  # the console reads a folder again when one of its files has changed
def _read_text(path: str, text: str) -> tuple[_Part | None, tuple[Problem, ...]]:
    source = Source(path, text)
    data, problems = read_yaml(source)
    if data is None and problems:
        return None, tuple(problems)
    part: _Part | None
    if isinstance(data, dict) and "override" in data:
        faults: list[Fault] = []
        kind = RelationFile if "relation" in data else OverrideFile
        part = read_record(kind, data, (), faults)
        problems += source.place_all(faults)
    else:
        part, found = _rulebook(source, data)
        problems += found
    return (None if problems else part), tuple(problems)


def _rulebook(source: Source, data: Any) -> tuple[Rulebook | None, list[Problem]]:
    if not isinstance(data, dict):
        return None, [source.at(0, 0, "not a rulebook: the file must hold `rulebook:`, `facts:`…")]
    written = data.get("format")
    if isinstance(written, int) and not isinstance(written, bool) and written > FORMAT:
        message = f"format {written} is newer than this oncall reads ({FORMAT}): upgrade oncall"
        return None, [source.place(Fault(("format",), message))]
    shared = aliases(source)
    if shared:
        return None, shared
    faults: list[Fault] = []
    book: RulebookFile = read_record(RulebookFile, data, (), faults)
    guessed = [fault.where for fault in faults]
    if ("start_when",) in guessed and book.facts:
        book = replace(book, start_when=f"any({next(iter(book.facts))})")
    params, wrong = _quantities(book.params)
    for fault in (*wrong, *faults_of(book)):
        # What stands in for a broken part is not the author's and has no faults of its own.
        if not any(fault.where[: len(place)] == place for place in guessed):
            faults.append(fault)
    of_relations = {
        param.of: params[name]
        for name, param in book.params.items()
        if isinstance(param, Reference) and param.value is not None and name in params
    }
    read = Rulebook(source.path, source.text, book, params, of_relations=of_relations)
    return read, source.place_all(faults)


def _quantities(
    params: Mapping[str, Param | Reference],
) -> tuple[dict[str, Quantity], list[Fault]]:
    values: dict[str, Quantity] = {}
    faults: list[Fault] = []
    for name, param in params.items():
        if isinstance(param, Reference):
            known = all_parameters()
            if param.of in known:
                values[name] = known[param.of].quantity
            else:
                message = f"no relation has the parameter `{param.of}`{nearest(param.of, known)}"
                faults.append(Fault(("params", name, "of"), message))
        try:
            if param.value is not None:
                values[name] = parse_quantity(param.value)
        except UsageError as error:
            faults.append(Fault(("params", name, "value"), str(error)))
    return values, faults


def _override(books: dict[str, Rulebook], source: Source, override: OverrideFile) -> list[Problem]:
    book = called(override.rulebook, books)
    if book is None:
        message = f"no rulebook `{override.rulebook}`{nearest(override.rulebook, books)}"
        return [source.place(Fault(("rulebook",), message))]
    values: dict[str, Quantity] = {}
    faults: list[Fault] = []
    if not override.override.enabled and book.name != override.rulebook:
        message = f"`{override.rulebook}` is a part of `{book.name}`, which is switched off whole"
        faults.append(Fault(("override", "enabled"), message))
    for name, written in override.override.params.items():
        where = ("override", "params", name)
        if name not in book.params:
            near = nearest(name, book.params)
            faults.append(Fault(where, f"{book.name} has no parameter `{name}`{near}", on_key=True))
            continue
        try:
            values[name] = replacement(book, name, f"`{name}`", written)
        except UsageError as error:
            faults.append(Fault(where, str(error)))
    if not faults:
        _replace(books, book.name, values, source.path)
        books[book.name] = replace(books[book.name], enabled=override.override.enabled)
    return source.place_all(faults)


def _override_relation(
    books: dict[str, Rulebook], source: Source, override: RelationFile
) -> list[Problem]:
    known = all_parameters()
    relations = {target.partition(".")[0] for target in known}
    if override.relation not in relations:
        near = nearest(override.relation, relations)
        message = f"no relation `{override.relation}` with parameters{near}"
        return [source.place(Fault(("relation",), message))]
    values: dict[str, Quantity] = {}
    faults: list[Fault] = []
    for name, written in override.override.params.items():
        target, where = f"{override.relation}.{name}", ("override", "params", name)
        try:
            if target in known:
                values[target] = of_relation(target, f"`{target}`", written)
            else:
                message = f"no relation has the parameter `{target}`{nearest(target, known)}"
                faults.append(Fault(where, message, on_key=True))
        except UsageError as error:
            faults.append(Fault(where, str(error)))
    if not faults:
        _replace_of_relations(books, values, source.path)
    return source.place_all(faults)
