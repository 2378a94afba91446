"""Findings written as a story: numbered steps, culprits, what was ruled out, how sure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from math import isfinite, prod
from typing import Any, get_args

from oncall.core.diagnosis import (
    Answer,
    Blame,
    BlameKind,
    Finding,
    Lost,
    Reason,
    RowsOf,
    RuledOut,
    Step,
)
from oncall.rules.engine.evaluate import Case, Evaluation
from oncall.rules.language.condition import parse_condition
from oncall.rules.language.rulebook_file import (
    DEFAULT_CONFIDENCE,
    NO_VERDICT,
    Conditional,
    Leaf,
    Node,
    Question,
    Said,
    Switch,
    lost_by,
)
from oncall.rules.language.rulebook_parts import (
    IDENTIFYING,
    MEASURING,
    ROLE_COLUMNS,
    WEIGHING,
    chosen,
    holding,
    nodes,
    roles,
)
from oncall.rules.language.template import Rows, hex_id

MOST_BLAMED = 1_000
LEAST_SURE, MOST_SURE = 0.01, 0.99

_KINDS = frozenset(get_args(BlameKind))
_NO_ROWS = Rows({}, (), 0)
# The most specific column decides the kind of a blame that does not name its own.
_KIND_BY_COLUMN: tuple[tuple[str, BlameKind], ...] = (
    ("rank", "rank"),
    ("flow", "flow"),
    ("nic", "nic"),
    ("port", "port"),
    ("link", "link"),
    ("gpu", "gpu"),
    ("node", "node"),
    ("stage", "stage"),
    ("comm", "group"),
)


@dataclass(frozen=True)
class Turn:
    """A question and the answer that some cases gave to it."""

    question: Question
    answer: Answer

    @property
    def taken(self) -> Node:
        return self.question.branches[self.answer]


@dataclass(frozen=True)
class Taken:
    """A table, and the codes of the row of it that some cases took; none of `otherwise`."""

    table: Switch
    codes: tuple[str, ...]


Way = tuple[Turn | Taken, ...]


def findings_of(
    evaluation: Evaluation, path: Way, leaf: Leaf, cases: Sequence[Case]
) -> Iterator[Finding]:
    """A finding for each case that ended at this leaf, not yet put together with others. Raises
    what reading facts raises."""
    teller = _Teller(evaluation, path, leaf)
    for case in cases:
        yield teller.tell(case)


class _Teller:
    """What all cases at one leaf share, prepared once."""

    def __init__(self, evaluation: Evaluation, path: Way, leaf: Leaf) -> None:
        self.evaluation = evaluation
        self.rulebook = evaluation.rulebook
        self.book = evaluation.rulebook.book
        self.path = [turn for turn in path if isinstance(turn, Turn)]
        self.codes = [taken for taken in path if isinstance(taken, Taken)]
        for taken in reversed(self.codes):
            leaf = taken.table.completed(leaf)
        self.blamed = "" if leaf.blame in (None, NO_VERDICT) else str(leaf.blame)
        self.leaf = leaf
        self.verdict = self.book.verdicts[leaf.verdict]
        self.next = leaf.next or self.verdict.next
        self.facts = {fact: evaluation.rows(fact) for fact in self._facts_reported()}
        self.params = {name: evaluation.params(name) for name in self._facts_shown()}

    def _facts_shown(self) -> set[str]:
        """Facts whose SQL a step shows."""
        return {turn.question.fact for turn in self.path if turn.answer != "unknown"} | {
            self.blamed or self.book.start_fact,
            self.book.start_fact,
        }

    def _facts_reported(self) -> set[str]:
        """Facts whose rows the sentences, the blame or the confidence read."""
        weights = [self.book.weights.get(name, ()) for name in self.leaf.confidence]
        weighed = [one for weight in weights for one in weight]
        choices: list[Sequence[Conditional]] = [
            self.next,
            self.leaf.title,
            self.leaf.say,
            *(turn.question.say for turn in self.path),
            weighed,
        ]
        texts = [turn.question.ask for turn in self.path]
        texts += [said.text for said in (*self.next, *self.leaf.title, *self.leaf.say)]
        texts += [said.text for turn in self.path for said in turn.question.say]
        texts += [one.because for one in weighed]
        read = {slot.name for text in texts for slot in self.rulebook.templates[text].slots}
        read |= {
            term.fact
            for each in choices
            for one in each
            for term in parse_condition(one.when).terms
        }
        read |= {one.value.partition(".")[0] for one in weighed}
        read |= {name for _, _, name in roles(self.leaf)}
        read |= {taken.table.fact for taken in self.codes}
        return (read & set(self.book.facts)) | {self.book.start_fact}

    def tell(self, case: Case) -> Finding:
        values = self._values(case)
        blamed: Rows = values[self.blamed] if self.blamed else _NO_ROWS
        reasons, confidence = self._confidence(values)
        started: Rows = values[self.book.start_fact]
        weighed = {name: _first(name, blamed, started) for name in WEIGHING}
        claim = self.verdict.claim
        return Finding(
            id="",
            rulebook=self.rulebook.name,
            verdict=self.leaf.verdict,
            title=self._say(self.leaf.title, values) or self.verdict.title,
            fault_class=self.verdict.fault_class,
            severity=self.verdict.severity,
            confidence=confidence,
            at_ns=_earliest(blamed, started),
            blame=blame_of(blamed),
            case={
                name: hex_id(value) if name == "comm" and value is not None else value
                for name, value in zip(self.book.case, case, strict=True)
            },
            story=tuple(self._steps(case, values)),
            ruled_out=tuple(self._ruled_out(values)),
            next=tuple(
                self.rulebook.templates[step.text].render_advice(values)
                for step in holding(self.next, values)
            ),
            sources=tuple(self.book.sources),
            reasons=reasons,
            picture=self.book.draw if self.verdict.draw else None,
            claim=replace(
                claim,
                kind=self.leaf.kind or claim.kind,
                on=self.leaf.on or claim.on,
                effects=lost_by(self.leaf.effect) if self.leaf.effect else claim.effects,
            ),
            lost=_lost(weighed),
            until_ns=_whole(weighed["until_ns"]),
            domain=str(weighed["domain"] or ""),
            fatal=weighed["fatal"] if isinstance(weighed["fatal"], bool) else None,
            part=weighed["part"] if isinstance(weighed["part"], str) else "",
            parts=frozenset(weighed["parts"]) if isinstance(weighed["parts"], list) else None,
            witness=str(weighed["witness"] or ""),
            former_names=self.rulebook.former_names(self.leaf.verdict),
        )

    def _values(self, case: Case) -> dict[str, Any]:
        """Everything a sentence may name, for this case."""
        values: dict[str, Any] = dict(self.rulebook.params)
        values.update(zip(self.book.case, case, strict=True))
        for fact, rows in self.facts.items():
            values[fact] = rows.get(case, _NO_ROWS)
        for fact in {taken.table.fact for taken in self.codes}:
            for column, codes in self._taken(fact):
                values[fact] = values[fact].having(column, codes)
        return values

    def _taken(self, fact: str) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What rows of a fact have whose tables' rows were taken: columns and codes."""
        for taken in self.codes:
            if taken.codes and taken.table.fact == fact:
                yield taken.table.column, taken.codes

    def _render(self, text: str, values: Mapping[str, Any]) -> str:
        return self.rulebook.templates[text].render(values)

    def _say(self, said: Sequence[Said], values: Mapping[str, Any]) -> str:
        """The text of those that is said of a case, or nothing if there is none."""
        one = chosen(said, values)
        return self._render(one.text, values) if one else ""

    def _steps(self, case: Case, values: Mapping[str, Any]) -> Iterator[Step]:
        """An opening if the root says something, a step for each question, and the conclusion.

        A sentence belongs to the answer that leads to it: a question's `say` goes with the step
        before it.
        """
        start = self.book.start_fact
        first = self.path[0].question if self.path else None
        if first is not None and first.say:
            yield self._step(case, values, start, "yes", self._say(first.say, values))
        for turn in self.path:
            taken = turn.taken
            ask = self._render(turn.question.ask, values)
            said = self._say(taken.say, values) if isinstance(taken, Question) else ""
            step = self._step(case, values, turn.question.fact, turn.answer, said)
            yield replace(step, ask=ask, name=turn.question.name)
        answer: Answer = self.path[-1].answer if self.path else "yes"
        said = self._say(self.leaf.say, values)
        yield self._step(case, values, self.blamed or start, answer, said)

    def _step(
        self, case: Case, values: Mapping[str, Any], fact: str, answer: Answer, say: str
    ) -> Step:
        if fact in self.facts:
            rows = values[fact].count
        else:
            rows = self.evaluation.counts(fact).get(case, 0) if fact in self.params else 0
        return Step(
            ask="",
            answer=answer,
            say=say,
            fact=fact,
            rows=rows,
            sql=self.book.facts[fact].strip(),
            params=self.params.get(fact, {}),
            rows_of=RowsOf(self.rulebook.name, case, tuple(self._taken(fact))),
        )

    def _ruled_out(self, values: Mapping[str, Any]) -> Iterator[RuledOut]:
        """Verdicts behind answers that were not given, each with the sentence that turned away."""
        seen = {self.leaf.verdict, NO_VERDICT}
        for turn in self.path:
            if turn.answer == "unknown":
                continue
            taken = turn.taken
            if isinstance(taken, Question) and taken.say:
                because = self._say(taken.say, values)
            else:
                because = f"{self._render(turn.question.ask, values)} {turn.answer.capitalize()}."
            other = turn.question.if_no if turn.answer == "yes" else turn.question.if_yes
            for _, node in nodes(other):
                if isinstance(node, Leaf) and node.verdict not in seen:
                    seen.add(node.verdict)
                    yield RuledOut(node.verdict, because)

    def _confidence(self, values: Mapping[str, Any]) -> tuple[tuple[Reason, ...], float]:
        if not self.leaf.confidence:
            why = "the rulebook sets no confidence of its own"
            return (Reason("default", DEFAULT_CONFIDENCE, why),), DEFAULT_CONFIDENCE
        reasons = tuple(
            reason for name in self.leaf.confidence for reason in self._reasons(name, values)
        )
        product = prod(reason.value for reason in reasons) if reasons else DEFAULT_CONFIDENCE
        return reasons, clip(product)

    def _reasons(self, name: str, values: Mapping[str, Any]) -> Iterator[Reason]:
        """A weight's value for this case, if it counts, or the rows of a fact."""
        if name not in self.book.weights:
            for row in dict_rows(values[name], ROLE_COLUMNS["confidence"]):
                value = _number(row.get("value"))
                if value is not None:
                    label = str(row.get("name") or name)
                    yield Reason(label, float(value), str(row.get("why") or ""))
            return
        one = chosen(self.book.weights[name], values)
        if one is None:
            return
        source, _, column = one.value.partition(".")
        known = values[source].values(column) if column else [values[source].value]
        value = _number(known[0]) if known else None
        if value is not None:
            label = name.replace("_", " ")
            yield Reason(label, float(value), self._render(one.because, values))


def clip(confidence: float) -> float:
    """Nothing is certain and nothing that was found is impossible."""
    return min(max(confidence, LEAST_SURE), MOST_SURE)


def dict_rows(rows: Rows, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows as mappings of those of `columns` that the fact has. No list identifies, except that
    of a group's ranks, which a mere count of ranks is not."""
    present = [(column, rows.columns[column]) for column in columns if column in rows.columns]
    for row in rows.rows:
        yield {
            column: row[place]
            if isinstance(row[place], (list, dict)) == (column == "ranks")
            else None
            for column, place in present
        }


def blame_of(rows: Rows) -> tuple[Blame, ...]:
    """The distinct culprits that a fact's rows name, in row order."""
    found: dict[tuple[Any, ...], Blame] = {}
    for row in dict_rows(rows, (*IDENTIFYING, *MEASURING, "kind")):
        named = row.pop("kind", None)
        if "rank" in row:
            row["rank"] = _whole(row["rank"])
        where = {
            column: hex_id(value) if column == "comm" else value
            for column, value in row.items()
            if value is not None
        }
        kind = named if named in _KINDS else _kind(where)
        if kind is not None and len(found) < MOST_BLAMED:
            key = (kind, *((k, str(v)) for k, v in where.items() if k not in MEASURING))
            found.setdefault(key, Blame(kind, where))
    return tuple(found.values())


def _kind(where: Mapping[str, Any]) -> BlameKind | None:
    return next((kind for column, kind in _KIND_BY_COLUMN if column in where), None)


def _first(column: str, *facts: Rows) -> Any:
    """The first value of a column in the first of the facts that has one."""
    values = (value for rows in facts for value in rows.values(column) if value is not None)
    return next(values, None)


def _lost(weighed: Mapping[str, Any]) -> Lost | None:
    """What the job lost by it, if the rulebook says how much."""
    share, low, high = (_number(weighed[f"lost_{name}"]) for name in ("share", "low", "high"))
    if share is None:
        return None
    gain = _number(weighed["lost_ns"])
    return Lost(
        float(share),
        None if low is None else float(low),
        None if high is None else float(high),
        None if gain is None else int(gain),
    )


def _earliest(blamed: Rows, started: Rows) -> int | None:
    for rows in (blamed, started):
        instants = [at for at in map(_number, rows.values("at_ns")) if at is not None]
        if instants:
            return int(min(instants))
    return None


def _number(value: Any) -> int | float | Decimal | None:
    """A finite number, or None: a rule's column may hold anything."""
    return value if isinstance(value, (int, float, Decimal)) and isfinite(value) else None


def _whole(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None
