"""What each rulebook, fact, relation and parameter contributes to what oncall says, and which roots
a change to oncall changes.

    python benchmarks/contributions.py record OUT.json [PATH...]
    python benchmarks/contributions.py compare BEFORE.json AFTER.json
    python benchmarks/contributions.py ablate OUT.json [PATH...] --minutes 90 --table TABLE.md
    python benchmarks/contributions.py owners OUT.json --table TABLE.md

`record` diagnoses every recording once, with the rulebooks as shipped: run it before and after a
step. `compare` lists the recordings whose findings differ, grouped by what changed; it exits 1 if
the roots of any do. A root is (rulebook, verdict, blame) of a finding that no other explains and
that is no information. `ablate` records as well and, for each rulebook, fact, relation and
parameter, empties it where it had rows (a parameter: halves and doubles it) and looks whether a
root changes; of those that are alike it tries a few, and what `--minutes` do not suffice for is
left out and counted. `owners` adds, for relations that decided nothing, the test of a rulebook
that fails without it, since no recording has such evidence. PATHs are recordings, folders of them,
suites of ../shared/judge and judge_machines; without any, fixtures and ../shared/data. `--lab` adds
jobs of the lab.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import typer
from contributions_ablation import KINDS, looked_at, targets
from contributions_recordings import HERE, TOP, Recording, recordings

from oncall.rules.language.load import load_rulebooks, shipped_folder

app = typer.Typer(add_completion=False, help=__doc__, rich_markup_mode=None)
Answer = dict[str, Any]  # what `looked_at` says of a recording
_SHARE = {"param": 0.34}  # of the tries: they are many, and take two diagnoses each
_ELSE = 0.34  # of the tries: where it stood behind no root, and may hold one back
_SURE = 0.1  # a confidence that changes by more is worth a line

Paths = Annotated[list[Path] | None, typer.Argument(metavar="PATH...")]
Lab = Annotated[int, typer.Option(help="so many jobs of the lab")]
Sample = Annotated[int, typer.Option(help="cases of each suite, at most")]
Seed = Annotated[int, typer.Option(help="of the sample, and of the order")]
Jobs = Annotated[int, typer.Option(help="recordings at a time")]


@app.command()
def record(
    out: Path, paths: Paths = None, lab: Lab = 0, sample: Sample = 10_000, seed: Seed = 0,
    jobs: Jobs = 2,
) -> None:  # fmt: skip
    """Diagnose every recording once and keep what was found, ran and fired."""
    _go(out, _chosen(paths, sample, seed, lab), jobs, Tries(0), 0.0)


@app.command()
def ablate(
    out: Path, paths: Paths = None, lab: Lab = 0, sample: Sample = 40, seed: Seed = 0,
    jobs: Jobs = 2,
    minutes: Annotated[float, typer.Option(help="for everything")] = 90.0,
    tries: Annotated[int, typer.Option(help="recordings to empty each in, at most")] = 12,
    table: Annotated[Path | None, typer.Option(help="write the table here")] = None,
) -> None:  # fmt: skip
    """Record, empty each part where it had rows, and say what changed."""
    _go(out, _chosen(paths, sample, seed, lab), jobs, Tries(tries), 60 * minutes)
    if table is not None:
        from contributions_table import table_of

        table.write_text(table_of(json.loads(out.read_text())))


@app.command()
def owners(found: Path, table: Annotated[Path, typer.Option(help="write the table here")]) -> None:
    """Say which test needs each relation that decided nothing, and write the table anew."""
    from contributions_owners import owner_of
    from contributions_table import idle_relations, table_of

    known = json.loads(found.read_text())
    for name in idle_relations(known):
        known.setdefault("owners", {})[name] = owner_of(name)
        typer.echo(f"{name}: {known['owners'][name] or 'no test needs it'}", err=True)
    found.write_text(json.dumps(known, indent=0))
    table.write_text(table_of(known))


def _chosen(paths: list[Path] | None, sample: int, seed: int, lab: int) -> list[Recording]:
    given = paths or [path for path in HERE if path.is_dir()]
    found = recordings(given, sample, seed, lab)
    typer.echo(f"{len(found)} recordings: {dict(Counter(one.kind for one in found))}", err=True)
    return found


# ------------------------------------------------------------------ recording


@dataclass
class Tries:
    """In how many recordings each was emptied so far, and where it is worth another try."""

    most: int
    behind: Counter[tuple[str, str]] = field(default_factory=Counter)
    elsewhere: Counter[tuple[str, str]] = field(default_factory=Counter)

    def open(self, done: Counter[tuple[str, str]], share: float) -> dict[str, frozenset[str]]:
        return {
            kind: frozenset(
                name
                for name in targets(kind)
                if done[kind, name] < round(self.most * share * _SHARE.get(kind, 1.0))
            )
            for kind in (KINDS if self.most else ())
        }

    def add(self, answer: Answer) -> None:
        for kind, found in answer.get("ablated", {}).items():
            behind = {*answer["behind"][kind]}
            for name in found:
                (self.behind if name in behind else self.elsewhere)[kind, name] += 1


def _go(out: Path, chosen: list[Recording], jobs: int, tries: Tries, budget_s: float) -> None:
    """Look at every recording in worker processes; what is known is written at the end, and
    meanwhile every minute."""
    began = written = time.monotonic()
    answers: dict[str, Answer] = {}
    waiting, running = list(reversed(chosen)), dict[Future[Answer], Recording]()
    with ProcessPoolExecutor(jobs, get_context("spawn"), max_tasks_per_child=40) as pool:
        while waiting or running:
            while waiting and len(running) < jobs:
                left_s = budget_s - (time.monotonic() - began)
                # None may take more than two shares: the last ones shall have theirs.
                most_s = max(0.0, 2 * jobs * left_s / len(waiting))
                one = waiting.pop()
                more = tries.open(tries.behind, 1.0), tries.open(tries.elsewhere, _ELSE)
                running[pool.submit(looked_at, one, *more, min(most_s, left_s))] = one
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                name = running.pop(done).name
                answers[name] = _result(done, name)
                tries.add(answers[name])
                typer.echo(f"{len(answers)}/{len(chosen)} {name} {_brief(answers[name])}", err=True)
            if time.monotonic() - written > 60 or not (waiting or running):
                written = time.monotonic()
                _write(out, answers, tries.most)


def _result(done: Future[Answer], name: str) -> Answer:
    """What is known of a recording: of a defect of oncall, its last line."""
    try:
        return done.result()
    except Exception as defect:
        return {"kind": "defect", "findings": [], "exit": 70, "error": f"{name}: {defect!r}"}


def _write(out: Path, answers: Mapping[str, Answer], tries: int) -> None:
    commit = ["git", "-C", str(TOP), "describe", "--always", "--dirty", "--exclude=*"]
    about = {
        "commit": subprocess.run(commit, capture_output=True, text=True).stdout.strip(),
        "date": datetime.now(UTC).date().isoformat(),
        "tries": tries,
        "arguments": [Path(one).name if "/" in one else one for one in sys.argv[1:]],
        "known": {kind: targets(kind) for kind in KINDS},
    }
    out.write_text(json.dumps({**about, "recordings": dict(sorted(answers.items()))}, indent=0))


def _brief(answer: Answer) -> str:
    roots = [f"{one['rulebook']}.{one['verdict']}" for one in answer["findings"] if one["root"]]
    tried = sum(map(len, answer.get("ablated", {}).values()))
    return f"exit {answer['exit']} {answer.get('error') or ' '.join(roots)} ({tried} ablations)"


# ------------------------------------------------------------------ comparing


@app.command()
def compare(
    before: Path,
    after: Path,
    everything: Annotated[bool, typer.Option("--all", help="name every recording")] = False,
) -> None:
    """List the recordings whose findings differ, grouped by what changed."""
    old, new = (json.loads(path.read_text())["recordings"] for path in (before, after))
    shared = sorted(old.keys() & new.keys())
    groups: dict[str, list[str]] = defaultdict(list)
    for name in shared:
        for what in changes(old[name], new[name]):
            groups[what].append(name)
    for what, names in sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])):
        typer.echo(f"{len(names):4d}  {what}")
        shown = names if everything else names[:4]
        more = f" and {len(names) - len(shown)} more" if len(shown) < len(names) else ""
        typer.echo(f"      {', '.join(shown)}{more}")
    differing = [name for name in shared if _roots(old[name]) != _roots(new[name])]
    typer.echo(
        f"roots changed in {len(differing)} of {len(shared)} recordings"
        f" ({len(old.keys() ^ new.keys())} are in one of the two alone)"
    )
    sys.exit(bool(differing))


def _roots(answer: Answer) -> set[tuple[str, str, str]]:
    return {_key(one) for one in answer["findings"] if one["root"]}


def _key(finding: Mapping[str, Any]) -> tuple[str, str, str]:
    name = f"{finding['rulebook']}.{finding['verdict']}"
    rulebook, _, verdict = _present_names().get(name, name).partition(".")
    return rulebook, verdict, "; ".join(finding["blame"])


@cache
def _present_names() -> Mapping[str, str]:
    """What verdicts that were renamed, or whose rulebook was, are called now."""
    return {
        former: f"{book.name}.{verdict}"
        for book in load_rulebooks([shipped_folder()])
        for verdict in book.book.verdicts
        for former in book.former_names(verdict)
    }


def changes(old: Answer, new: Answer) -> Iterator[str]:
    """What is different, each in words that are the same wherever it is."""
    lost, gained = _roots(old) - _roots(new), _roots(new) - _roots(old)
    for one in sorted(lost):
        name = ".".join(one[:2])
        others = {".".join(other[:2]) for other in gained if other[2] == one[2]}
        if any(other[:2] == one[:2] for other in gained):
            yield f"other blame: {name}"
        elif others:
            yield f"other verdict on the same blame: {name} -> {', '.join(sorted(others))}"
        else:
            yield f"lost: {name}{_now(one, new)}"
    for one in sorted(gained):
        same = any(other[:2] == one[:2] or other[2] == one[2] for other in lost)
        if not same:
            yield f"gained: {'.'.join(one[:2])}{_now(one, old, 'was')}"
    by_key = {_key(one): one for one in old["findings"] if one["root"]}
    for one in new["findings"]:
        before = by_key.get(_key(one)) if one["root"] else None
        name = f"{one['rulebook']}.{one['verdict']}"
        if before and before["severity"] != one["severity"]:
            yield f"severity: {name} {before['severity']} -> {one['severity']}"
        if before and abs(before["confidence"] - one["confidence"]) > _SURE:
            way = "up" if one["confidence"] > before["confidence"] else "down"
            yield f"confidence {way}: {name}"
    if old["exit"] != new["exit"]:
        yield f"exit {old['exit']} -> {new['exit']}"
    if old.get("error") != new.get("error"):
        yield f"error: {old.get('error')} -> {new.get('error')}"


def _now(root: tuple[str, str, str], other: Answer, word: str = "now") -> str:
    """What a root is, or was, in the other answer, if it is there."""
    there: Iterable[Any] = (one for one in other["findings"] if _key(one) == root)
    found = next(iter(there), None)
    if found is None:
        return ""
    return f" ({word} {'information' if found['severity'] == 'info' else 'a consequence'})"


if __name__ == "__main__":
    app()
