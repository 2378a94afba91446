"""Names that frameworks give their groups, and what these are for."""

from __future__ import annotations

import pytest
from tests.sql import rows

from oncall.analysis.common.group_names import role_named
from oncall.evidence import Incident


@pytest.mark.parametrize(
    "role, name, means",
    [
        ("tp", None, "tp"),
        ("mesh_dp", None, "dp"),
        (None, " PP ", "pp"),
        ("undefined", "world", "world"),
        ("default_pg", "0", "world"),
        ("TENSOR_MODEL_PARALLEL_GROUP", None, "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", None, "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", None, "dp"),
        ("CONTEXT_PARALLEL_GROUP", None, "cp"),
        ("TENSOR_AND_CONTEXT_PARALLEL_GROUP", None, "cp"),
        ("TENSOR_AND_DATA_PARALLEL_GROUP", None, "mixed"),
        ("EXPERT_MODEL_PARALLEL_GROUP", None, "ep"),
        ("EXPERT_DATA_PARALLEL_GROUP", None, "expert_dp"),
        ("EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP", None, "ep"),
        ("POSITION_EMBEDDING_GROUP", None, "embedding"),
        ("MODEL_PARALLEL_GROUP", "7", None),
        (None, None, None),
    ],
)
def test_what_a_group_is_for(
    incident: Incident, role: str | None, name: str | None, means: str | None
) -> None:
    incident.append("comms", {"job": "j", "comm": 1, "rank": [0], "role": role, "name": name})
    incident.require(["members"])
    assert rows(incident, f"SELECT {role_named()} FROM members") == [(means,)]
