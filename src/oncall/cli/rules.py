"""`oncall rules`: list, check, test, show, new, schema, diff."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from oncall.cli.commands import group
from oncall.cli.options import (
    RulesOption,
    SiteRulesOption,
    checked_site_folder,
    rulebooks_in_force,
)
from oncall.cli.terminal import WIDTH, terminal_width
from oncall.core.errors import ExitCode, RulebookError, UsageError
from oncall.core.printable import harmless
from oncall.core.units import counted

app = group("Check, test, show and write rulebooks.")

_Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[PATH...]",
        help="Rulebook files or folders. Default: the shipped and the site's rulebooks.",
    ),
]


@app.command("list")
def list_(rules: RulesOption = None, site_rules: SiteRulesOption = True) -> None:
    """List the rulebooks in force and where each comes from."""
    from oncall.rules.authoring.outline import origins

    _print(origins(rulebooks_in_force(rules, site_rules)))


@app.command()
def check(paths: _Paths = None, site_rules: SiteRulesOption = True) -> None:
    """Check rulebooks, overrides and tests for errors.

    Lists all errors with their lines and exits with 2 if there are any.
    """
    from oncall.rules.engine.check import check_paths
    from oncall.rules.language.load import load_rulebooks, rulebook_files, shipped_folder
    from oncall.rules.language.rulebook import hidden_names

    chosen = _chosen(paths, site_rules)
    problems = check_paths(chosen)
    if problems:
        raise RulebookError(problems)
    _print(hidden_names(load_rulebooks([shipped_folder(), *chosen])).values())
    count = len({file for path in chosen for file in rulebook_files(path)})
    _print([f"{counted(count, 'rulebook')} checked, no errors"])


@app.command()
def test(paths: _Paths = None, site_rules: SiteRulesOption = True) -> None:
    """Run the tests of rulebooks (NAME.test.yaml).

    Exits with 2 if a test fails.
    """
    from oncall.rules.authoring.testing import run_tests, test_files

    passed = failed = 0
    chosen = _chosen(paths, site_rules)
    for file in dict.fromkeys(found for path in chosen for found in test_files(path)):
        for result in run_tests(file):
            passed += result.passed
            failed += not result.passed
            word = "pass" if result.passed else "FAIL"
            _print([f"{word}  {result.path}:{result.line}: {result.name}"])
            _print(result.report.splitlines())
    _print([f"{counted(passed + failed, 'test')}, {failed} failed"])
    if not passed + failed:
        raise UsageError("no tests found: tests are files named NAME.test.yaml")
    if failed:
        raise typer.Exit(ExitCode.BAD_INPUT)


@app.command()
def show(
    name: Annotated[
        str | None,
        typer.Argument(help="A rulebook, a verdict such as H1, or a relation. Default: list all."),
    ] = None,
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
) -> None:
    """Draw a rulebook's tree, the paths to a verdict, or a relation's parameters."""
    from oncall.evidence.registry import all_relations
    from oncall.rules.authoring.outline import drawing, listing, relation_drawing, ways_to
    from oncall.rules.language.rulebook import called, hidden_names
    from oncall.rules.language.template import nearest

    wide = max(terminal_width(most=120), WIDTH)
    books = rulebooks_in_force(rules, site_rules).in_force
    if name is None:
        _print(listing(books))
        return
    by_name = {book.name: book for book in books}
    named = called(name, by_name)
    if named is not None:
        _print(says for own, says in hidden_names(books).items() if own == named.name)
        _print(drawing(named, wide))
        return
    of, _, verdict = name.rpartition(".")
    among = [called(of, by_name)] if of else books
    found = [
        (book, present)
        for book in among
        if book is not None
        for present, declared in book.book.verdicts.items()
        if verdict in (present, *declared.was)
    ]
    if not found and name in all_relations():
        _print(relation_drawing(all_relations()[name], books[0].of_relations, wide))
        return
    if not found:
        known = [
            *by_name,
            *all_relations(),
            *(verdict for book in books for verdict in book.book.verdicts),
        ]
        raise UsageError(f"no rulebook, verdict or relation `{name}`{nearest(name, known)}")
    for number, (book, present) in enumerate(found):
        _print(["", ""][: 2 * number])
        _print(ways_to(book, present, wide))


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the new rulebook.")],
    pattern: Annotated[
        str | None,
        typer.Option("--from", metavar="RULEBOOK", help="Copy this rulebook as a start."),
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.")
    ] = Path(),
    rules: RulesOption = None,
    site_rules: SiteRulesOption = True,
) -> None:
    """Create a commented rulebook with tests that pass."""
    from oncall.rules.authoring.starter import write_new
    from oncall.rules.language.rulebook import called
    from oncall.rules.language.template import nearest

    book = None
    if pattern is not None:
        by_name = {one.name: one for one in rulebooks_in_force(rules, site_rules).in_force}
        book = called(pattern, by_name)
        if book is None:
            raise UsageError(f"no rulebook `{pattern}`{nearest(pattern, by_name)}")
    for path in write_new(name, output, book):
        _print([str(path)])


@app.command()
def schema(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="File to write. Default: stdout."),
    ] = None,
) -> None:
    """Print the JSON Schema of a rulebook, for editors."""
    import json

    from oncall.rules.language.schema import rulebook_schema

    text = json.dumps(rulebook_schema(), indent=2, ensure_ascii=False) + "\n"
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {output}: {error.strerror}") from error


@app.command()
def diff(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[DIR...]", help="Folders of rulebooks. Default: the site's rulebooks."
        ),
    ] = None,
) -> None:
    """Show how the site's rulebooks differ from the shipped ones.

    Compares values, facts and trees; ignores comments.
    """
    from oncall.rules.authoring.outline import differences
    from oncall.rules.language.load import load_rulebooks, shipped_folder

    shipped = {book.name: book for book in load_rulebooks([shipped_folder()])}
    changed = (
        load_rulebooks([shipped_folder(), *paths])
        if paths
        else rulebooks_in_force(None, with_site=True).in_force
    )
    for book in changed:
        if book.name not in shipped:
            _print([f"{book.name}: new, from {book.path}"])
        elif lines := list(differences(shipped[book.name], book)):
            _print([f"{book.name}:", *(f"  {line}" for line in lines)])


def _chosen(paths: list[Path] | None, with_site: bool) -> list[Path]:
    from oncall.rules.language.load import shipped_folder

    if paths:
        return paths
    site = checked_site_folder() if with_site else None
    return [shipped_folder(), *([site] if site is not None and site.is_dir() else [])]


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        sys.stdout.write(harmless(line) + "\n")
