"""The rulebook that the engine runs: a file with its parameters as quantities, which a site or the
command line may have replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from oncall.core.units import Quantity
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.rulebook_file import Leaf, Reference, RulebookFile, Switch
from oncall.rules.language.rulebook_parts import (
    ROLE_COLUMNS,
    WEIGHING,
    conditions,
    nodes,
    roles,
    sentences,
)
from oncall.rules.language.template import Template, TemplateError, parse_template


def called(name: str, books: Mapping[str, Rulebook]) -> Rulebook | None:
    """The rulebook of that name, or the one that took its place."""
    took = (book for book in books.values() if name in book.book.was)
    return books.get(name) or next(took, None)


def hidden_names(books: Iterable[Rulebook]) -> dict[str, str]:
    """A sentence by each former name that is another rulebook's now: a site's own one that
    replaced the shipped one of that name replaces nothing since."""
    by_name = {book.name: book for book in books}
    return {
        name: f"`{name}` is the rulebook in {by_name[name].path}, no former name of "
        f"`{book.name}`, which runs beside it"
        for book in by_name.values()
        for name in book.book.was
        if name in by_name
    }


def names_today(books: Iterable[Rulebook]) -> dict[str, str]:
    """`rulebook.VERDICT` as it is called now, by each of its former names. The name of a verdict
    in force means that."""
    every = [(book, verdict) for book in books for verdict in book.book.verdicts]
    now = {f"{book.name}.{verdict}": book.former_names(verdict) for book, verdict in every}
    return {name: today for today, names in now.items() for name in names if name not in now}


@dataclass(frozen=True)
class Rulebook:
    """A rulebook that may run: `params` are in base units and may differ from the file's.

    `site_file` is the site's file that it is from, or whose values it has; `instead_of` the shipped
    rulebook that it replaces. `of_relations` are replaced values of relations' parameters, by
    `relation.parameter`: all rulebooks in force have the same.
    """

    path: str
    text: str
    book: RulebookFile
    params: Mapping[str, Quantity]
    enabled: bool = True
    overridden_by: tuple[str, ...] = field(default=())
    site_file: str = ""
    instead_of: Rulebook | None = None
    of_relations: Mapping[str, Quantity] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.book.rulebook

    def former_names(self, verdict: str) -> tuple[str, ...]:
        """What `rulebook.VERDICT` was called before, the newest first."""
        declared = self.book.verdicts[verdict]
        names = [
            f"{book}.{name}"
            for book in (self.name, *self.book.was)
            for name in (verdict, *declared.was)
        ]
        return tuple(names[1:])

    @property
    def written_here(self) -> bool:
        """The site's own, not a shipped one with other values."""
        return self.site_file == self.path

    def with_params(self, params: Mapping[str, Quantity], by: str) -> Rulebook:
        """The same rulebook with some values replaced; `by` says who did it. The value of a
        reference is replaced for the relation too."""
        shared = {self.references[name]: params[name] for name in params.keys() & self.references}
        replaced = self.instead_of
        if replaced is not None:
            known = {name: value for name, value in params.items() if replaced.takes(name, value)}
            replaced = replaced.with_params(known, by)
        changed = replace(
            self,
            params={**self.params, **params},
            overridden_by=(*self.overridden_by, by),
            instead_of=replaced,
        )
        return changed.with_relation_params(shared, by) if shared else changed

    def with_relation_params(self, values: Mapping[str, Quantity], by: str) -> Rulebook:
        """The same rulebook for relations with some values replaced, `relation.parameter`."""
        here = {name: values[of] for name, of in self.references.items() if of in values}
        applies = by in ("", *self.overridden_by) or not here
        replaced = self.instead_of
        return replace(
            self,
            params={**self.params, **here},
            overridden_by=self.overridden_by if applies else (*self.overridden_by, by),
            instead_of=replaced and replaced.with_relation_params(values, by),
            of_relations={**self.of_relations, **values},
        )

    @cached_property
    def references(self) -> Mapping[str, str]:
        """Parameters that are a relation's, with its name: `relation.parameter`."""
        declared = self.book.params.items()
        return {name: param.of for name, param in declared if isinstance(param, Reference)}

    def takes(self, param: str, value: Quantity) -> bool:
        """Whether it has a parameter of that name and dimension."""
        return param in self.params and self.params[param].dimension == value.dimension

    @cached_property
    def templates(self) -> dict[str, Template]:
        """Text -> parsed template, for every sentence of the tree and its verdicts."""
        return {text: parse_template(text) for _, text in sentences(self.book)}

    @cached_property
    def reported(self) -> frozenset[str]:
        """Facts that are looked up by case: by the start, a test, a leaf, a sentence or a weight.

        They must have the case's columns; the others only prepare them.
        """
        found = {self.book.start_fact}
        for _, node in nodes(self.book.tree):
            found |= {fact for _, _, fact in roles(node)}
            if not isinstance(node, Leaf):
                found.add(node.fact)
        for _, text in sentences(self.book):
            with suppress(TemplateError):
                found |= {slot.name for slot in parse_template(text).slots}
        for _, when in conditions(self.book):
            with suppress(TemplateError):
                found |= {term.fact for term in parse_condition(when).terms}
        for weight in self.book.weights.values():
            found |= {one.value.partition(".")[0] for one in weight}
        return frozenset(found & set(self.book.facts))

    @cached_property
    def columns_used(self) -> dict[str, set[str]]:
        """Fact -> the columns that sentences, conditions, weights and leaves may read of it."""
        used: dict[str, set[str]] = {name: set() for name in self.book.facts}
        for template in self.templates.values():
            for slot in template.slots:
                if slot.name in used:
                    used[slot.name] |= set(slot.columns)
        for _, when in conditions(self.book):
            for term in parse_condition(when).terms:
                used[term.fact] |= {term.column} if term.column else set()
        for one in (one for weight in self.book.weights.values() for one in weight):
            fact, _, column = one.value.partition(".")
            if column:
                used[fact].add(column)
        for _, node in nodes(self.book.tree):
            for role, _, fact in roles(node):
                if fact in used:
                    used[fact] |= set(ROLE_COLUMNS[role])
            if isinstance(node, Switch) and node.fact in used:
                used[node.fact] |= {node.column, *ROLE_COLUMNS["blame"]}
        used[self.book.start_fact] |= {"at_ns", *WEIGHING}
        return used
