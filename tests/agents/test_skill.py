"""The steps of the skill, followed by a client without a model: where they lead, what they cost."""

from __future__ import annotations

import asyncio
import re
from importlib import import_module
from pathlib import Path

import pytest

from oncall.agents.answers import ANSWERS
from oncall.agents.evidence import Allowed, OpenEvidence

TOP = Path(__file__).parents[2]
SKILL = (TOP / "packaging" / "agents" / "oncall" / "SKILL.md").read_text()
MOST_CALLS, MOST_CHARACTERS = 7, 30_000  # of this incident; a model pays for both


def test_the_steps_name_the_culprit_within_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    sdk = pytest.importorskip("mcp", reason="the MCP SDK is not installed (oncall-console[mcp])")
    from oncall.agents.server import make_server

    monkeypatch.syspath_prepend(str(TOP / "benchmarks"))
    benchmark = import_module("agents")
    evidence = OpenEvidence(Allowed((TOP / "fixtures" / "flight_recorder",)))

    async def report() -> tuple[object, object]:
        async with sdk.Client(make_server(evidence)) as client:
            agent = benchmark.Agent(client)
            return agent, await agent.report("not_entered", "hung")

    agent, answer = asyncio.run(report())
    evidence.close()
    (first, *_) = answer["findings"]  # type: ignore[index]
    assert (first["verdict"], first["blame"][0]["rank"]) == ("H1", 5)
    assert agent.refused == []  # type: ignore[attr-defined]
    assert 3 < agent.calls <= MOST_CALLS  # type: ignore[attr-defined]
    assert 1_000 < agent.characters < MOST_CHARACTERS  # type: ignore[attr-defined]


def test_the_skill_names_tools_that_there_are() -> None:
    named = set(re.findall(r"`(\w+)`", SKILL)) & set(ANSWERS)
    assert {"list_jobs", "diagnose", "front", "step_rows", "show_rule", "stacks"} <= named
    assert "explain_verdict" in named
