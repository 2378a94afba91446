"""One recording for benchmarks/contributions.py: what ran, fired, and changes roots when emptied.

All happens in one incident: relations are computed once, and only those that read what is emptied
or moved are computed again, so that an ablation takes a fraction of a diagnosis.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from contributions_recordings import Recording

from oncall.core.errors import MissingEvidence, OncallError
from oncall.core.units import Quantity
from oncall.evidence.columns import create_table_sql
from oncall.evidence.parameters import all_parameters
from oncall.evidence.registry import all_relations
from oncall.evidence.relations import Param
from oncall.rules.engine import engine
from oncall.rules.language.load import load_rulebooks, shipped_folder
from oncall.rules.language.rulebook_parts import nodes, roles
from oncall.rules.language.sql import FactSql, read_sql
from oncall.use_case.diagnose import diagnose, exit_code

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis, Finding
    from oncall.evidence.incident import Incident
    from oncall.rules.engine.evaluate import Evaluation
    from oncall.rules.language.rulebook import Rulebook

FACTOR = 2.0  # by which a parameter is moved, both ways
LIMIT_S = 300.0  # of a fact: a busy machine changes no verdict
_LABELS = ("stage",)  # what only describes who is blamed
KINDS = ("relation", "fact", "rulebook", "param")
CHANGES = ("root", "exit", "finding", "same")


# ------------------------------------------------------------ what is there to ask about


@cache
def books() -> tuple[Rulebook, ...]:
    """The rulebooks as they are shipped."""
    return tuple(load_rulebooks([shipped_folder()]))


@cache
def facts() -> Mapping[str, FactSql]:
    """The SQL of every fact, by `rulebook.fact`."""
    import duckdb

    con = duckdb.connect()
    return {
        f"{book.name}.{fact}": read_sql(con, sql)
        for book in books()
        for fact, sql in book.book.facts.items()
    }


@cache
def users() -> Mapping[str, frozenset[str]]:
    """The relations and facts that use a parameter, by `relation.parameter` or, of a rulebook's
    own, `rulebook.parameter`; a rulebook itself, by its name, where a weight is it."""
    found: dict[str, set[str]] = {target: set() for target in all_parameters()}
    for entry in all_relations().values():
        for name, param in entry.params.items():
            found[f"{entry.name}.{name}" if isinstance(param, Param) else param].add(entry.name)
    for book in books():
        target = {name: book.references.get(name, f"{book.name}.{name}") for name in book.params}
        for one in target.values():
            found.setdefault(one, set())
        for fact in book.book.facts:
            for name in facts()[f"{book.name}.{fact}"].param_names:
                found[target[name]].add(f"{book.name}.{fact}")
        for weighed in (one for weight in book.book.weights.values() for one in weight):
            if weighed.value in target:
                found[target[weighed.value]].add(book.name)
    return {target: frozenset(names) for target, names in found.items()}


def targets(kind: str) -> tuple[str, ...]:
    """All of a kind."""
    of: Mapping[str, Iterable[str]] = {
        "relation": all_relations(),
        "fact": facts(),
        "rulebook": [book.name for book in books()],
        "param": users(),
    }
    return tuple(of[kind])


def using(names: Iterable[str]) -> frozenset[str]:
    """The parameters that some of these relations, facts and rulebooks use."""
    known = frozenset(names)
    return frozenset(target for target, by in users().items() if by & known)


# ------------------------------------------------------------ what a diagnosis says


def findings_of(diagnosis: Diagnosis) -> list[dict[str, Any]]:
    """Every finding without its sentences; a root is explained by no other and no information."""
    return [
        {
            "rulebook": finding.rulebook,
            "verdict": finding.verdict,
            "blame": sorted(_blamed(one.kind, one.where) for one in finding.blame),
            "severity": finding.severity,
            "confidence": round(finding.confidence, 3),
            "root": is_root(finding),
        }
        for finding in diagnosis.findings
    ]


def is_root(finding: Finding) -> bool:
    return finding.explained_by is None and finding.severity != "info"


def _blamed(kind: str, where: Mapping[str, Any]) -> str:
    known = (
        f"{name} {value}"
        for name, value in sorted(where.items())
        if value is not None and (name == kind or name not in _LABELS)
    )
    return f"{kind}: {', '.join(known)}"


def roots_of(diagnosis: Diagnosis) -> frozenset[tuple[str, str, tuple[str, ...]]]:
    """(rulebook, verdict, blame) of each root finding."""
    return frozenset(
        (one["rulebook"], one["verdict"], tuple(one["blame"]))
        for one in findings_of(diagnosis)
        if one["root"]
    )


# ------------------------------------------------------------ what ran and fired


class Watched:
    """A diagnosis with what ran (its inputs had evidence), fired (had rows; of a rulebook: a case
    started), and stood behind a root, each as kind -> names."""

    def __init__(self, incident: Incident) -> None:
        self.ran, self.fired, self.behind = ({kind: set[str]() for kind in KINDS} for _ in range(3))
        self.diagnosis = _diagnosed(incident, books(), self._look)
        relations = all_relations()
        # Those that are ready; what nobody asked for is not made for the sake of counting.
        made = [name for name in relations if name in incident._ready]
        self.ran["relation"] = {name for name in relations if not incident.missing(name)}
        self.fired["relation"] = {name for name in made if incident.rows(name)}
        for finding in filter(is_root, self.diagnosis.findings):
            self._stood_behind(finding)
        for seen in (self.ran, self.fired, self.behind):
            seen["param"] |= using(set[str]().union(*(seen[kind] for kind in KINDS[:3])))

    def _look(self, evaluation: Evaluation) -> None:
        book, missing = evaluation.rulebook, evaluation.incident.missing
        for fact in book.book.facts:  # each after those that it reads
            name, reads = f"{book.name}.{fact}", evaluation.sql(fact).tables
            here = {f"{book.name}.{read}" for read in reads if read in book.book.facts}
            evidence = [one for one in reads if one in all_relations() or one in _tables()]
            if here <= self.ran["fact"] and not any(map(missing, evidence)):
                self.ran["fact"].add(name)
        fired = {fact for fact in evaluation.computed if evaluation.total(fact)}
        self.fired["fact"] |= {f"{book.name}.{fact}" for fact in fired}
        if f"{book.name}.{book.book.start_fact}" in self.ran["fact"]:
            self.ran["rulebook"].add(book.name)
        if book.book.start_fact in fired:
            self.fired["rulebook"].add(book.name)

    def _stood_behind(self, finding: Finding) -> None:
        book = next(book for book in books() if book.name == finding.rulebook)
        leaves = [
            leaf for _, leaf in nodes(book.book.tree)
            if getattr(leaf, "verdict", None) == finding.verdict
        ]  # fmt: skip
        named = {fact for leaf in leaves for _, _, fact in roles(leaf)}
        waiting = [book.book.start_fact, *named, *(step.fact for step in finding.story)]
        waiting = [f"{book.name}.{fact}" for fact in waiting if fact in book.book.facts]
        self.behind["rulebook"].add(book.name)
        while waiting:
            name = waiting.pop()
            kind = "fact" if name in facts() else "relation"
            if name not in self.fired[kind] or name in self.behind[kind]:
                continue
            self.behind[kind].add(name)
            if kind == "relation":
                waiting += all_relations()[name].inputs
            else:
                reads = facts()[name].tables
                waiting += [f"{book.name}.{r}" if r in book.book.facts else r for r in reads]


@cache
def _tables() -> frozenset[str]:
    from oncall.evidence.schema import BY_NAME

    return frozenset(BY_NAME)


def _diagnosed(incident: Incident, of: Sequence[Rulebook], observe: Any = None) -> Diagnosis:
    """The diagnosis; `observe` sees each rulebook's facts before they go."""
    run = engine.run
    engine.run = partial(run, observe=observe)
    try:
        return diagnose(incident, of, fact_time_limit_s=LIMIT_S)
    finally:
        engine.run = run


# ------------------------------------------------------------ ablations


def ablated(incident: Incident, kind: str, name: str) -> Iterator[Diagnosis]:
    """The diagnosis with that relation or fact empty, that rulebook switched off; with a parameter
    divided and multiplied by FACTOR. The incident, diagnosed before, is left as it was."""
    if kind == "rulebook":
        yield _diagnosed(incident, [replace(b, enabled=b.name != name) for b in books()])
    elif kind == "fact":
        yield _diagnosed(incident, [_with_empty_fact(book, name) for book in books()])
    elif kind == "relation":
        with _anew(incident, [name]):
            incident.con.execute(create_table_sql(name, all_relations()[name].columns))
            incident._ready.add(name)
            incident._empty[name] = True
            yield _diagnosed(incident, books())
    else:
        for factor in (1 / FACTOR, FACTOR):
            moved = _with_moved(name, factor)
            if moved is not None:
                with _anew(incident, users()[name] & all_relations().keys()):
                    yield _diagnosed(incident, moved)


def _with_empty_fact(book: Rulebook, name: str) -> Rulebook:
    of, _, fact = name.partition(".")
    if book.name != of:
        return book
    emptied = {fact: f"SELECT * FROM ({book.book.facts[fact]}) WHERE false"}
    return replace(book, book=replace(book.book, facts={**book.book.facts, **emptied}))


def _with_moved(target: str, factor: float) -> list[Rulebook] | None:
    """The rulebooks with the parameter times `factor`; None if it cannot be moved."""
    owner, _, param = target.partition(".")
    declared = all_parameters().get(target)
    book = next((book for book in books() if book.name == owner and param in book.params), None)
    value = declared.quantity if declared else book.params[param] if book else None
    if value is None or isinstance(value.value, str) or not value.value:
        return None
    kept = int if isinstance(value.value, int) and abs(value.value) > 1 else float
    moved = Quantity(kept(value.value * factor), value.dimension)
    if declared:
        return [one.with_relation_params({target: moved}, "") for one in books()]
    return [one.with_params({param: moved}, "") if one is book else one for one in books()]


@contextmanager
def _anew(incident: Incident, names: Iterable[str]) -> Iterator[None]:
    """Within it these relations and all that read them are not computed yet; after it they are as
    before."""
    changed: dict[str, None] = {}
    for entry in all_relations().values():  # each after those that it reads
        if entry.name in names or changed.keys() & {*entry.inputs}:
            changed[entry.name] = None
    kept: dict[str, bool | None] = {}
    for name in changed:
        if name in incident._ready and name not in incident._views:
            incident.con.execute(f'ALTER TABLE "{name}" RENAME TO "kept_{name}"')
            kept[name] = incident._empty.pop(name, None)
            incident._ready.discard(name)
        incident._forget(all_relations()[name])
    try:
        yield
    finally:
        incident.replace_parameters({})
        for name in changed:
            incident._forget(all_relations()[name])
        for name, empty in kept.items():
            incident.con.execute(f'ALTER TABLE "kept_{name}" RENAME TO "{name}"')
            incident._ready.add(name)
            if empty is not None:
                incident._empty[name] = empty


# ------------------------------------------------------------ one recording


def looked_at(
    recording: Recording,
    open_behind: Mapping[str, frozenset[str]],
    open_else: Mapping[str, frozenset[str]],
    most_s: float,
) -> dict[str, Any]:
    """The recording diagnosed, and within `most_s` ablated: of what stood behind a root what
    `open_behind` lists (kind -> names), of what else fired what `open_else` does.

    `ablated`: kind -> name -> the first of CHANGES that is true of the roots, the exit code, or
    else of a confidence, a severity, a consequence or information. Parameters that are no numbers
    are not in it.
    """
    began = time.monotonic()
    answer: dict[str, Any] = {"kind": recording.kind, "findings": []}
    try:
        incident = recording.opened()
    except OncallError as error:
        return answer | {"exit": int(error.exit_code), "error": str(error)}
    with incident:
        try:
            seen = Watched(incident)
        except (OncallError, MissingEvidence) as error:
            return answer | {"exit": int(error.exit_code), "error": str(error)}
        answer |= {"exit": int(exit_code(seen.diagnosis)), "findings": findings_of(seen.diagnosis)}
        answer["seconds"] = round(time.monotonic() - began, 2)
        for word in ("ran", "fired", "behind"):
            answer[word] = {kind: sorted(names) for kind, names in getattr(seen, word).items()}
        wanted = [
            (kind, name)
            for kind in KINDS
            for name in sorted(seen.fired[kind])
            if name in (open_behind if name in seen.behind[kind] else open_else).get(kind, ())
        ]
        random.Random(recording.name).shuffle(wanted)
        wanted.sort(key=lambda one: one[0] == "param")  # they take longest
        found: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
        for kind, name in wanted:
            if time.monotonic() - began > most_s:
                break
            after = [_unlike(seen.diagnosis, one) for one in ablated(incident, kind, name)]
            if after:
                found[kind][name] = min(after, key=CHANGES.index)
        if wanted and _unlike(seen.diagnosis, _diagnosed(incident, books())) != "same":
            raise AssertionError(f"{recording.name}: the incident is not as it was")
        answer["ablated"] = found
    return answer


def _unlike(before: Diagnosis, after: Diagnosis) -> str:
    if roots_of(after) != roots_of(before):
        return "root"
    if exit_code(after) != exit_code(before):
        return "exit"
    return "finding" if findings_of(after) != findings_of(before) else "same"
