"""Tests of one file as jobs of one incident: relations cost as much for one job as for fifty.

A test takes `job`, adds its evidence, and then asks. Before the first one runs, all of the file are
run up to where they ask; what relations say is then computed once, for the jobs of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from oncall.evidence import Incident

from .sql import Rows, rows


class Asked(Exception):
    """The evidence of a test is complete."""


class Job:
    """A test's job within the incident of its file."""

    def __init__(self, incident: Incident, name: str) -> None:
        self.name = name
        self.complete = False
        self._incident = incident

    def append(self, table: str, columns: Mapping[str, Any]) -> None:
        """Evidence of this job."""
        if not self.complete:
            self._incident.append(table, dict(columns) | {"job": self.name})

    def found(self, relation: str, columns: str, where: str = "true") -> Rows:
        """This job's rows of a relation, sorted."""
        if not self.complete:
            raise Asked
        self._incident.require([relation])
        asked = f"SELECT {columns} FROM {relation} WHERE job = ? AND ({where}) ORDER BY ALL"
        return rows(self._incident, asked, self.name)


def jobs_of(request: pytest.FixtureRequest, incident: Incident) -> dict[str, Job]:
    """The job of each test of the file, by the test's name."""
    jobs: dict[str, Job] = {}
    for item in request.session.items:
        if not isinstance(item, pytest.Function) or item.path != request.path:
            continue
        if "job" in item.fixturenames:
            job = jobs[item.name] = Job(incident, item.name)
            with pytest.raises(Asked):
                item.obj(job=job, **(item.callspec.params if hasattr(item, "callspec") else {}))
            job.complete = True
    return jobs
