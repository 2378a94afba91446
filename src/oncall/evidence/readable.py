"""Questions about evidence that may hold anything: an answer, or the reason why there is none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from oncall.core.errors import OncallError, short_reason


@contextmanager
def readable(problem: str) -> Iterator[None]:
    """Within, what evidence breaks is an OncallError of `problem` and the reason: a picture or a
    screen that cannot be shown must not end what shows the others. Under ONCALL_DEBUG the error
    leaves as it is, with its traceback."""
    try:
        yield
    except (OncallError, duckdb.InterruptException):
        raise
    except Exception as error:
        if os.environ.get("ONCALL_DEBUG"):
            raise
        raise OncallError(f"{problem}: {short_reason(error)}") from error
