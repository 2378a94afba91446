"""What tests of the text of hosts share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncall.evidence.incident import Incident


@pytest.fixture
def incident() -> Iterator[Incident]:
    with Incident.empty() as incident:
        yield incident
