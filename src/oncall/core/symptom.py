"""What the engineer observed of a job, as a parameter of the relation that weighs it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Symptom(StrEnum):
    """What the engineer observed of the job."""

    HUNG = "hung"
    SLOW = "slow"
    UNKNOWN = "unknown"


_PARAMETER = "progress_symptoms.symptom"
_WEIGHTS = {Symptom.HUNG: 1, Symptom.SLOW: -1}


def with_symptom(overrides: Mapping[str, str], symptom: Symptom) -> dict[str, str]:
    """The overrides, with what the engineer observed as one of them."""
    weight = _WEIGHTS.get(symptom)
    reported = {} if weight is None else {_PARAMETER: str(weight)}
    return {**reported, **overrides}


def symptom_of(weight: float) -> Symptom:
    """What the engineer observed, by the value of that parameter."""
    return next((one for one, sign in _WEIGHTS.items() if sign * weight > 0), Symptom.UNKNOWN)
