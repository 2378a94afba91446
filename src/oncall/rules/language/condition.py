"""When a text is said: `none(hot) and slowed.reason = 'power'`.

    condition  = term { "and" term }
    term       = ("any" | "none") "(" fact ")"
               | fact "." column [ operator ( number | 'text' | true | false | parameter ) ]
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">="

A column is that of the fact's first row, as in sentences; alone it asks whether its value is known
and not false. What is compared with an unknown value does not hold.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oncall.core.units import Quantity
from oncall.rules.language.template import Rows, TemplateError

_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TERM = re.compile(
    r"\s*(?:(?P<test>any|none)\(\s*(?P<fact>\w+)\s*\)"
    r"|(?P<row>[A-Za-z_]\w*)\.(?P<column>[A-Za-z_]\w*)"
    r"(?:\s*(?P<sign>!=|<=|>=|=|<|>)\s*(?P<literal>'[^']*'|-?\d+(?:\.\d+)?|[A-Za-z_]\w*))?)\s*"
)
_AND = re.compile(r"\band\b")
_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Term:
    """One test or comparison; `offset` is where the fact's name begins in the condition.

    `column` is None for a test of rows, `sign` is "" where a column stands alone. `param` names
    the parameter that is compared with, otherwise `literal` is.
    """

    fact: str
    offset: int
    wants_rows: bool = True
    column: str | None = None
    sign: str = ""
    literal: bool | float | str | None = None
    param: str | None = None

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it does for one case. `values`: name -> Rows (fact) or Quantity (parameter)."""
        rows: Rows = values[self.fact]
        if self.column is None:
            return (rows.count > 0) is self.wants_rows
        known = rows.values(self.column)
        if not known or not self.sign:
            return bool(known) and known[0] is not False
        wanted = values[self.param] if self.param else self.literal
        try:
            return _OPERATORS[self.sign](
                known[0], wanted.value if isinstance(wanted, Quantity) else wanted
            )
        except TypeError:
            return False


@dataclass(frozen=True)
class Condition:
    """Terms that must all hold; none: always."""

    terms: tuple[Term, ...]

    def holds(self, values: Mapping[str, Any]) -> bool:
        return all(term.holds(values) for term in self.terms)


ALWAYS = Condition(())


@lru_cache(maxsize=4096)
def parse_condition(text: str | None) -> Condition:
    """The condition's terms; None: always. Raises TemplateError at what cannot be read."""
    if text is None:
        return ALWAYS
    terms: list[Term] = []
    at = 0
    while True:
        match = _TERM.match(text, at)
        end = len(text) if match is None else match.end()
        joined = _AND.match(text, end)
        if match is None or (end < len(text) and joined is None):
            wrong = at if match is None else end
            raise TemplateError(
                "a condition is any(fact), none(fact), fact.column or a comparison such as "
                "fact.column = 'word', several joined by `and`",
                wrong + len(text[wrong:]) - len(text[wrong:].lstrip()),
                len(text[wrong:].strip()),
            )
        terms.append(_term(match))
        if joined is None:
            return Condition(tuple(terms))
        at = joined.end()


def _term(match: re.Match[str]) -> Term:
    if match["test"]:
        return Term(match["fact"], match.start("fact"), match["test"] == "any")
    literal: bool | float | str | None = None
    param = None
    written = match["literal"]
    if written and written.startswith("'"):
        literal = written[1:-1]
    elif written in _WORDS:
        literal = _WORDS[written]
    elif written and re.match(r"[-\d]", written):
        literal = float(written)
    else:
        param = written
    return Term(
        match["row"], match.start("row"), True, match["column"], match["sign"] or "", literal, param
    )
