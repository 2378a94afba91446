"""Values of options, taken as they are where nothing is to be converted.

Typer converts every value with pydantic, also defaults and plain text; loading pydantic takes a
tenth of a diagnosis.
"""

from __future__ import annotations

from typing import Any

import typer.core


def take_plain_values() -> None:
    """Let all options take plain values without pydantic. Does nothing to a version of Typer that
    converts in another way."""
    if hasattr(typer.core, "build_runtime_param"):
        typer.core.build_runtime_param = _PlainValues


class _PlainValues:
    """Converts the values of one parameter: what is of its type already is not converted."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        wanted = self._descriptor.annotation
        if isinstance(wanted, type) and isinstance(value, wanted):
            return value
        if wanted == list[str] and isinstance(value, list | tuple):
            return list(value)
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        from typer._coercion import build_runtime_param

        return build_runtime_param(self._descriptor).coerce(value, param, ctx)
