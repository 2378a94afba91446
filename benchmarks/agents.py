"""What an agent can know from the tools of `oncall mcp` alone, in how many calls and characters.

    python benchmarks/agents.py JUDGE CASES [--lab 25] [--number 25] [--first 70000] [--symptom]

JUDGE has score.py, which judges an answer by its case's truth.json; CASES is a folder of cases with
Flight Recorder dumps, `--lab` simulates as many more. A client without a model follows the steps of
packaging/agents/oncall/SKILL.md over real stdio, reads the text blocks as a model would, never the
files, and reports whom it would name. `--symptom`: it passes on the symptom that a person saw.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accuracy_simulated import DOUBLE, SAME_CLASS, SINGLE

SYMPTOMS = {"hang": "hung", "slow": "slow"}


@dataclass
class Agent:
    """Asks as the skill says, and counts what that costs."""

    client: Any
    calls: int = 0
    characters: int = 0
    refused: list[str] = field(default_factory=list)

    async def ask(self, tool: str, **arguments: Any) -> Any:
        """The answer that stands between the marks of the text; None if the tool refused."""
        result = await self.client.call_tool(tool, arguments)
        text = "".join(block.text for block in result.content)
        self.calls += 1
        self.characters += len(text)
        if result.is_error:
            self.refused.append(f"{tool}: {text.splitlines()[-1]}")
            return None
        return json.loads(text[text.index(">\n") + 2 : text.rindex("\n</")])

    async def report(self, evidence: str, symptom: str | None) -> dict[str, Any]:
        """Steps 1 to 5 of the skill: the diagnosis, after its check."""
        jobs = (await self.ask("list_jobs", evidence=evidence))["jobs"]
        job = {"job": jobs[0]["job"]} if len(jobs) > 1 else {}
        given = {"symptom": symptom} if symptom else {}
        answer: dict[str, Any] = await self.ask("diagnose", evidence=evidence, **job, **given)
        roots = [one for one in answer["findings"] if not one["explained_by"]]
        for finding in roots[:1]:
            await self.ask("explain_verdict", name=f"{finding['rulebook']}.{finding['verdict']}")
            for number, step in enumerate(finding["story"], 1):
                if step["rows"]:
                    given = {"finding": finding["id"], "step": number, "limit": 5}
                    await self.ask("step_rows", evidence=evidence, **job, **given)
            if finding["class"] == "hang":
                await self.ask("front", evidence=evidence, **job)
        return answer


def judged(score: Any, truth: dict[str, Any], answer: dict[str, Any]) -> str:
    """right, suspect (inconclusive, and the first suspect is the culprit), or what went wrong."""
    for finding in answer["findings"]:
        finding["verdict"] = SAME_CLASS.get(finding["verdict"], finding["verdict"])
    verdict = score.judge(truth, answer)
    if truth["family"] == "none":
        return "false alarm" if verdict["false_alarm"] else "right"
    first = next(iter(answer["suspects"]), {"blame": []})
    named = set().union(*(score.as_ranks(one) for one in first["blame"]))
    if verdict["right"]:
        return "right"
    if answer["result"] == "inconclusive":
        return "suspect" if named == set(truth["culprits"]) else "inconclusive"
    return "wrong" if verdict["said"] else "silent"


def simulated(folder: Path, number: int, first: int) -> None:
    """Cases of the lab, with a truth.json as the judge's."""
    from oncall_lab import simulate
    from oncall_lab.drawn.training import random_scenario

    for at, asked in zip(range(number), (SINGLE + DOUBLE) * number, strict=False):
        incident, truth = simulate(random_scenario(first + at, asked))
        case = folder / f"lab-{at:02}-{'+'.join(asked) or 'healthy'}"
        case.mkdir(parents=True)
        with incident:
            incident.save(case / "evidence.oncall")
        faults = sorted(truth.faults, key=lambda one: one.kind)
        ranks = sorted({rank for one in faults for rank in one.ranks})
        kinds = [one.kind for one in faults]
        known = {
            "family": score_family(kinds),
            "class": kinds[0] if kinds else None,
            "class_ok": kinds,
            "culprits": ranks,
            "acceptable": [list(map(int, one.ranks)) for one in faults],
            "equivalents": [],
        }
        (case / "truth.json").write_text(json.dumps(known, default=int))


def score_family(kinds: list[str]) -> str:
    return {"H": "hang", "S": "slow"}[kinds[0][0]] if kinds else "none"


async def ask_all(cases: dict[str, Path], root: Path, score: Any, symptoms: bool) -> list[Any]:
    """(case, outcome, calls, characters, seconds, refusals) of each."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "oncall.cli.main", "mcp", *{str(root), *cases_roots(cases)}],
    )
    rows = []
    async with Client(server) as client:
        for name, evidence in cases.items():
            truth = json.loads((evidence.parent / "truth.json").read_text())
            agent, began = Agent(client), time.monotonic()
            answer = await agent.report(
                str(evidence), SYMPTOMS.get(truth["family"]) if symptoms else None
            )
            outcome = judged(score, truth, answer)
            took = time.monotonic() - began
            rows.append((name, outcome, agent.calls, agent.characters, took, agent.refused))
            print(
                f"{name:32} {outcome:12} {agent.calls:2} calls {agent.characters:7,} characters",
                flush=True,
            )
            for line in agent.refused:
                print(f"    refused: {line}")
    return rows


def cases_roots(cases: dict[str, Path]) -> set[str]:
    return {str(path.parents[1]) for path in cases.values()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("judge", type=Path)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--lab", type=int, default=25)
    parser.add_argument("--number", type=int, default=25, help="of the cases in the folder, evenly")
    parser.add_argument("--first", type=int, default=70_000, help="first seed of the lab")
    parser.add_argument("--symptom", action="store_true")
    options = parser.parse_args()
    spec = importlib.util.spec_from_file_location("score", options.judge / "score.py")
    assert spec and spec.loader
    score = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(score)
    with tempfile.TemporaryDirectory() as scratch:
        lab = Path(scratch).resolve()
        simulated(lab, options.lab, options.first)
        found = sorted(path.resolve() for path in options.cases.glob("*/fr"))
        step = max(1, len(found) / options.number) if options.number else 1
        chosen = [found[int(at * step)] for at in range(min(options.number, len(found)))]
        cases = {path.parent.name: path for path in chosen}
        cases |= {path.parent.name: path for path in sorted(lab.glob("*/evidence.oncall"))}
        rows = asyncio.run(ask_all(cases, lab, score, options.symptom))
    print()
    for name, part in (
        ("judge", [row for row in rows if not row[0].startswith("lab-")]),
        ("lab", [row for row in rows if row[0].startswith("lab-")]),
        ("both", rows),
    ):
        if not part:
            continue
        counts = Counter(outcome for _, outcome, *_ in part)
        calls, characters, took = (sorted(row[at] for row in part) for at in (2, 3, 4))
        outcomes = ", ".join(f"{number} {what}" for what, number in counts.most_common())
        print(
            f"| {name} | {len(part)} | {outcomes}"
            f" | {statistics.median(calls):.0f}, at most {calls[-1]}"
            f" | {statistics.median(characters) / 1000:.1f}, at most {characters[-1] / 1000:.1f}"
            f" | {statistics.median(took):.1f} s | {sum(len(row[5]) for row in part)} |"
        )


if __name__ == "__main__":
    main()
