"""Evidence that goes away while a command reads it."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import UsageError
from oncall.use_case.gathering import Wanted, read_shards


def test_shards_that_are_removed_meanwhile(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the shards were removed meanwhile"):
        read_shards({"gpu001": tmp_path}, Wanted(), ())
