"""Style rules that are parsed once.

Textual parses all of them again for each screen that is shown first, which takes longer than
painting it.
"""

from __future__ import annotations

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation

_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


class ParsedOnce(Stylesheet):
    """A stylesheet that knows the rules of each text in each theme."""

    def reparse(self) -> None:
        """Apply new variables. Raises StylesheetError, and the rules are as before."""
        self.parse()

    def _parse_rules(
        self,
        css: str,
        read_from: CSSLocation,
        is_default_rules: bool = False,
        tie_breaker: int = 0,
        scope: str = "",
    ) -> list[RuleSet]:
        theme = tuple(self._variables.items())
        key = (theme, css, read_from, is_default_rules, tie_breaker, scope)
        if (known := _parsed.get(key)) is None:
            known = super()._parse_rules(css, read_from, is_default_rules, tie_breaker, scope)
            _parsed[key] = known
        return known
