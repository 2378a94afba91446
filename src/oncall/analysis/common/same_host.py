"""Whether two names are of one host, in SQL. `gpu017.site` is `gpu017`, and NULL may be any."""

from __future__ import annotations

_ADDRESS = r"\d+[.]\d+[.]\d+[.]\d+"
_NAME = f"regexp_extract(lower({{}}), '^({_ADDRESS}|[^.]+)', 1)"


def is_same_host(one: str, other: str) -> str:
    """True unless the columns have different names."""
    return f"coalesce({_NAME.format(one)} = {_NAME.format(other)}, true)"
