"""What the engineer observed of a job, as a parameter of the rulebook that weighs it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Symptom(StrEnum):
    """What the engineer observed of the job."""

    HUNG = "hung"
    SLOW = "slow"
    UNKNOWN = "unknown"


_WEIGHTS = {Symptom.HUNG: "1", Symptom.SLOW: "-1"}


def with_symptom(overrides: Mapping[str, str], symptom: Symptom) -> dict[str, str]:
    """The overrides, with what the engineer observed as one of them."""
    weights = {"hang.symptom": _WEIGHTS[symptom]} if symptom in _WEIGHTS else {}
    return {**weights, **overrides}
