"""What a communicator is for, by the name or role that its framework gave it.

Where names do not say it, relation `parallelism` finds it by use.
"""

from __future__ import annotations

EMBEDDING, WORLD, MIXED, EXPERT_DP = "embedding", "world", "mixed", "expert_dp"
_DIMENSIONS = ("tp", "pp", "dp", "ep", "cp", WORLD, EMBEDDING)

# Words of the names that frameworks give their groups, the more special first.
_WORDS = (
    ("embd", EMBEDDING),
    ("embedding", EMBEDDING),
    ("expert_data", EXPERT_DP),
    ("expert", "ep"),
    ("pipeline", "pp"),
    ("tensor_and_data", MIXED),
    ("tensor_and_context", "cp"),
    ("data_parallel", "dp"),
    ("tensor", "tp"),
    ("context", "cp"),
    ("world", WORLD),
    ("default", WORLD),
)


def role_named(members: str = "members") -> str:
    """SQL: tp, pp, dp, ep, cp, or another of these roles, by the role and name of a row of relation
    `members`; NULL where they do not say it."""
    # PyTorch describes the group of a device mesh's dimension as mesh_ and its name.
    said = "regexp_replace(lower(trim(n)), '^mesh_', '')"
    words = ", ".join(f"['{word}', '{role}']" for word, role in _WORDS)
    return f"""list_filter(list_transform([{members}.role, {members}.name], lambda n: CASE
        WHEN {said} IN {_DIMENSIONS} THEN {said}
        ELSE list_filter([{words}], lambda w: contains({said}, w[1]))[1][2] END),
        lambda r: r IS NOT NULL)[1]"""
