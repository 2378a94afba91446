"""One fleet behind a real sshd for all tests of this folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the fixture's module is shared with benchmarks

from loopback import Loopback, why_not


@pytest.fixture(scope="session")
def loopback(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loopback]:
    """The fleet; each test session has one."""
    if reason := why_not():
        pytest.skip(reason)
    with Loopback(
        tmp_path_factory.mktemp("ssh"), more_inner=[f"inner{number:02}" for number in range(1, 21)]
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
