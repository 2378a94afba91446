"""Where ranks are in the job, by what their groups are for."""

from __future__ import annotations

import pytest

from oncall.evidence import Incident


@pytest.mark.parametrize("prefix", ["", "mesh_"])
def test_groups_of_a_device_mesh_are_named_by_its_dimensions(prefix: str) -> None:
    groups = {1: ("pp", (0, 1)), 2: ("pp", (2, 3)), 3: ("dp", (0, 2)), 4: ("dp", (1, 3))}
    rows = [
        {"job": "j", "comm": comm, "rank": rank, "comm_rank": place, "size": 2}
        | {"role": prefix + role}
        for comm, (role, members) in groups.items()
        for place, rank in enumerate(members)
    ]
    with Incident.empty() as incident:
        incident.append("ranks", {"job": "j", "rank": [0, 1, 2, 3]})
        incident.append("comms", {name: [row[name] for row in rows] for name in rows[0]})
        incident.require(["stage_layout"])
        found = incident.con.execute("SELECT rank, stage FROM stage_layout ORDER BY rank")
        assert found.fetchall() == [(0, 0), (1, 1), (2, 0), (3, 1)]
