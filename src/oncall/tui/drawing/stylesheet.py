"""Style rules that are parsed once.

Textual parses all of them again for each screen that is shown first, which takes longer than
painting it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.css.types import CSSLocation
from textual.dom import DOMNode

_parsed: dict[tuple[object, ...], list[RuleSet]] = {}


class ParsedOnce(Stylesheet):
    """A stylesheet that knows the rules of each text in each theme."""

    _parses_only = False

    @contextmanager
    def parsing_only(self) -> Iterator[None]:
        """Take rules in without applying them to what is there."""
        self._parses_only = True
        try:
            yield
        finally:
            self._parses_only = False

    def update(self, root: DOMNode, animate: bool = False) -> None:
        if not self._parses_only:
            super().update(root, animate)

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
