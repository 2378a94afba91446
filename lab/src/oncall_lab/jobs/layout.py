"""Process groups of a job, by the role they have in its program."""

from __future__ import annotations

from dataclasses import dataclass

from oncall_lab.jobs.scenario import PIPELINES, JobScenario


@dataclass(frozen=True)
class Group:
    """A process group: PyTorch's name and description, and its members in order."""

    name: str
    desc: str
    role: str
    members: tuple[int, ...]
    crosses: bool  # hosts

    def local(self, rank: int) -> int:
        """The rank within the group."""
        return self.members.index(rank)


@dataclass(frozen=True)
class Layout:
    """All groups in order of creation."""

    groups: tuple[Group, ...]

    def of(self, rank: int) -> dict[str, Group]:
        """The groups of a rank by role."""
        return {group.role: group for group in self.groups if rank in group.members}


# Inner groups are neighbours, outer ones their counterparts; stages of a pipeline lie apart.
_ROLES = {
    "hsdp": (("shard", "mesh_shard"), ("replicate", "mesh_replicate")),
    "moe": (("expert", "EXPERT_MODEL_PARALLEL_GROUP"), ("data", "EXPERT_DATA_PARALLEL_GROUP")),
    "context_parallel": (("ring", "CONTEXT_PARALLEL_GROUP"), ("data", "DATA_PARALLEL_GROUP")),
    "reinforcement": (("tensor", "mesh_tp"), ("data", "mesh_dp")),
    "serving": (("tensor", "undefined"), ("data", "undefined")),
    **dict.fromkeys(
        PIPELINES, (("data", "DATA_PARALLEL_GROUP"), ("stages", "PIPELINE_MODEL_PARALLEL_GROUP"))
    ),
}


def layout(scenario: JobScenario) -> Layout:
    """The default group of all ranks, and those of the program."""
    s = scenario
    everybody = tuple(range(s.ranks))
    found = [("world", "default_pg", everybody)]
    if s.program in _ROLES:
        (inner, inner_desc), (outer, outer_desc) = _ROLES[s.program]
        size = s.ranks // s.group if s.program in PIPELINES else s.group
        found += [(inner, inner_desc, everybody[i : i + size]) for i in range(0, s.ranks, size)]
        found += [(outer, outer_desc, everybody[i::size]) for i in range(size)]
    return Layout(
        tuple(
            Group(str(i), desc, role, members, len({r // s.gpus_per_host for r in members}) > 1)
            for i, (role, desc, members) in enumerate(g for g in found if len(g[2]) > 1)
        )
    )
