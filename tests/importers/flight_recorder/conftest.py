"""What tests of dumps share."""

from __future__ import annotations

import pytest

from oncall.evidence.incident import Incident


@pytest.fixture
def incident():
    with Incident.empty() as empty:
        yield empty
