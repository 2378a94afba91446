"""Run a rulebook's tests, and say of a failure what came, on which path, from which rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oncall.core.diagnosis import Answer, Blame, Finding
from oncall.core.errors import OncallError, RulebookError
from oncall.rules.engine.check import problems_of
from oncall.rules.engine.engine import Outcome, Trace, run
from oncall.rules.engine.evaluate import Evaluation
from oncall.rules.language.load import (
    TEST_SUFFIX,
    is_override,
    is_reviewed,
    replacement,
    rulebook_files,
)
from oncall.rules.language.positions import Fault, Source
from oncall.rules.language.rulebook import Rulebook
from oncall.rules.language.rulebook_file import NO_VERDICT
from oncall.rules.language.template import hex_id, plain
from oncall.rules.language.tests_file import (
    SKIPPED,
    Expected,
    TestCase,
    TestFile,
    communicator,
    evidence,
    load_tests,
    read_tests,
    refuse_unknown,
    tests_of,
)

_ROWS_SHOWN = 5


@dataclass(frozen=True)
class TestResult:
    """One test's result; `report` is empty if it passed."""

    __test__ = False

    path: str
    line: int
    name: str
    report: str

    @property
    def passed(self) -> bool:
        return not self.report


def test_files(path: Path) -> list[Path]:
    """The test files that a path means: itself, the one of a rulebook, or all of a folder."""
    if path.is_dir():
        return sorted(path.glob(f"*{TEST_SUFFIX}"))
    if path.name.endswith(TEST_SUFFIX):
        return [path]
    return [tests_of(file) for file in rulebook_files(path) if not is_override(file)]


test_files.__test__ = False  # type: ignore[attr-defined]


def run_tests(path: Path) -> Iterator[TestResult]:
    """Each test of a file, one after the other. Raises RulebookError if it is wrong, or if its
    rulebook does not pass `oncall rules check`."""
    source, tests, rulebook = load_tests(path)
    if not is_reviewed(rulebook) and (problems := problems_of([Path(rulebook.path)])):
        raise RulebookError(problems)
    yield from _results(source, tests, rulebook)


def run_tests_of(rulebook: Rulebook, text: str, path: str) -> Iterator[TestResult]:
    """Each test of a text, on a rulebook that need not be saved. Raises RulebookError if the text
    is wrong, or asks for what the rulebook has not."""
    source = Source(path, text)
    tests = read_tests(source)
    refuse_unknown(source, tests, rulebook)
    yield from _results(source, tests, rulebook)


def _results(source: Source, tests: TestFile, rulebook: Rulebook) -> Iterator[TestResult]:
    for index, test in enumerate(tests.tests):
        line = source.place(Fault(("tests", index, "name"), "")).line
        try:
            report = _report(tests, test, rulebook)
        except OncallError as error:
            report = f"  {error}"
        yield TestResult(source.path, line, test.name, report)


def _report(tests: TestFile, test: TestCase, rulebook: Rulebook) -> str:
    """Empty if the test passes, otherwise what to know about its failure."""
    changed = {
        name: replacement(rulebook, name, f"`{name}`", value) for name, value in test.params.items()
    }
    book = rulebook.with_params(changed, "test")
    with evidence(tests, test) as incident:
        outcome = run(incident, [book])
        if _met(test.expect, outcome):
            return ""
        tables: list[str] = []
        run(incident, [book], observe=lambda evaluation: tables.extend(_tables(evaluation)))
    lines = ["  expected  " + "\n            ".join(map(_wanted, test.expect))]
    lines += ["  got       " + "\n            ".join(_got(outcome))]
    lines += [f"  skipped   {skipped.rule}: {skipped.why}" for skipped in outcome.skipped]
    lines += [f"  path      {_path(book, trace)}" for trace in outcome.traces]
    return "\n".join([*lines, *tables])


def _met(expected: Sequence[Expected], outcome: Outcome) -> bool:
    """Whether the findings are those expected, each once and none else."""
    if any(one.verdict == SKIPPED for one in expected):
        return bool(outcome.skipped) and not outcome.findings
    wanted = [one for one in expected if one.verdict != NO_VERDICT]
    left = list(outcome.findings)
    for one in wanted:
        match = next((finding for finding in left if _matches(one, finding)), None)
        if match is None:
            return False
        left.remove(match)
    nothing = [one.path for one in expected if one.verdict == NO_VERDICT and one.path is not None]
    paths = [list(trace.path) for trace in outcome.traces if trace.verdict == NO_VERDICT]
    return not left and all(list(path.items()) in paths for path in nothing)


def _path_of(finding: Finding) -> list[tuple[str, Answer]]:
    return [(step.name, step.answer) for step in finding.story if step.ask]


def _matches(one: Expected, finding: Finding) -> bool:
    said = " ".join(step.say for step in finding.story)
    blamed = sorted(str(label(blame)) for blame in finding.blame)
    return (
        one.verdict == finding.verdict
        and (one.blame is None or _named(one.blame, blamed) == blamed)
        and (one.path is None or list(one.path.items()) == _path_of(finding))
        and (one.says is None or one.says in said)
    )


def _named(expected: Sequence[int | str], blamed: Sequence[str]) -> list[str]:
    """The expected culprits as they are labelled; a communicator may be called as in `given`."""
    names = map(str, expected)
    return sorted(name if name in blamed else hex_or(name, blamed) for name in names)


def hex_or(name: str, blamed: Sequence[str]) -> str:
    """The communicator of that name if it is blamed, otherwise the name itself."""
    comm = hex_id(communicator(name))
    return comm if comm in blamed else name


def label(blame: Blame) -> str | int:
    """What a test calls a culprit: 3, gpu017, gpu017/mlx5_0, ..."""
    where = blame.where
    if blame.kind == "group":
        return str(where.get("comm_name") or where.get("comm"))
    value = where.get(blame.kind)
    if blame.kind in ("nic", "gpu", "port") and "node" in where:
        return f"{where['node']}/{value}"
    return value if isinstance(value, int) else str(value)


def _wanted(one: Expected) -> str:
    blame = "" if one.blame is None else f" blaming {list(one.blame)}"
    path = "" if one.path is None else f", path {_way(one.path.items())}"
    return f"{one.verdict}{blame}{path}" + (f", saying {one.says!r}" if one.says else "")


def _way(asked: Iterable[tuple[str, Answer]]) -> str:
    return ", ".join(f"{question}: {answer}" for question, answer in asked) or "-"


def _got(outcome: Outcome) -> list[str]:
    found = []
    for finding in outcome.findings:
        blamed = [label(blame) for blame in finding.blame]
        path = _way(_path_of(finding))
        found.append(f"{finding.verdict} blaming {blamed}, path {path}")
        found.append(f"  {finding.story[-1].say}")
    return found or [NO_VERDICT]


def _path(book: Rulebook, trace: Trace) -> str:
    asked = _way(trace.path)
    end = trace.verdict if trace.verdict is not None else "stopped"
    case = ", ".join(map(plain, trace.case, book.book.case))
    return f"({case}): {asked} -> {end}"


def _tables(evaluation: Evaluation) -> Iterator[str]:
    """The facts that were computed, each with its first rows."""
    for fact in evaluation.computed:
        columns, rows = evaluation.sample(fact, _ROWS_SHOWN)
        total = evaluation.total(fact)
        yield f"  fact      {fact}: {total} row{'' if total == 1 else 's'}"
        if rows:
            cells = [columns, *(list(map(plain, row, columns)) for row in rows)]
            widths = [max(len(row[place]) for row in cells) for place in range(len(columns))]
            for row in cells:
                padded = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
                yield "              " + "  ".join(padded).rstrip()
