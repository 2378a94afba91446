"""Diagnose recordings of real PyTorch jobs as their user would, and compare with the truth.

    python score.py RECORDINGS [--only WORD ...] [--copied] [--wrong]

Runs in the project's own environment. Each kind of evidence is judged alone, then dumps with each
other kind. `--copied` judges copies of the files, whose times are when they were copied. `right`
names the kind of fault and exactly the culprits (for a sound job: no finding); `kind` the kind, and
nobody or more than the culprits (at most half of the ranks); `unsure` is an answer that says so
(exit 3), `suspect` one that names exactly the culprits first; `silent` is "No fault found" of a
faulty job; `alarm` is a finding about a sound job; the rest is `wrong`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from oncall.cli.commands import app

EVIDENCE = {
    "fr": ["fr"],
    "logs": ["logs"],
    "stacks": ["stacks"],
    "profile": ["profile"],
    "fr+stacks": ["fr", "stacks"],
    "fr+profile": ["fr", "profile"],
    "together": ["fr", "logs", "stacks"],
}
# Which classes of findings are the truth's; a rank whose program failed is absent for the others.
ACCEPTED = {
    "hang": {"hang", "process"},  # RAS calls a stopped rank unresponsive
    "failed": {"hang", "process", "failure", "log", "application", "host"},
    "mismatch": {"hang", "application"},
    "slow": {"slow", "application", "host"},
}


def diagnosed(paths: list[Path]) -> dict[str, Any]:
    """What `oncall diagnose --format json` says of the paths; raises if it fails."""
    said = CliRunner().invoke(app, ["diagnose", *map(str, paths), "--format", "json"])
    if said.exit_code not in (0, 1, 3):
        return {"result": f"exit {said.exit_code}", "findings": [], "problem": said.output[-200:]}
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def blamed(finding: dict[str, Any]) -> set[int]:
    ranks: set[int] = set()
    for one in finding["blame"]:
        ranks |= {one["rank"]} if one.get("rank") is not None else set(one.get("ranks", ()))
    return ranks


def judged(truth: dict[str, Any], answer: dict[str, Any]) -> tuple[str, str]:
    """One word for the answer, and what it said."""
    roots = [
        one
        for one in answer["findings"]
        if one["explained_by"] is None and one["severity"] != "info"
    ]
    said = "; ".join(f"{one['class']} {one['verdict']} {sorted(blamed(one))}" for one in roots)
    if answer["result"].startswith("exit"):
        return "wrong", answer["result"] + " " + answer["problem"]
    if truth["class"] == "none":
        unsure = answer["result"] == "inconclusive"
        return ("alarm" if roots else "unsure" if unsure else "right"), said or answer["doubt"]
    if not roots:
        first = next(iter(answer.get("suspects", ())), {"blame": []})
        unsure = "suspect" if blamed(first) == set(truth["ranks"]) else "unsure"
        return "silent" if answer["result"] == "none" else unsure, answer["doubt"]
    head = roots[0]
    ranks, culprits = blamed(head), set(truth["ranks"])
    if head["class"] not in ACCEPTED[truth["class"]]:
        return "wrong", said
    if ranks == culprits:
        return "right", said
    near = not ranks or (culprits < ranks and 2 * len(ranks) <= truth["world"])
    return ("kind" if near else "wrong"), said


def copies(paths: list[Path], to: Path) -> list[Path]:
    """The same folders as `cp -r` leaves them."""
    return [
        shutil.copytree(path, to / path.name, copy_function=shutil.copyfile, dirs_exist_ok=True)
        for path in paths
    ]


def holds_evidence(folder: Path) -> bool:
    """Whether anything was recorded there: a job that left nothing is no case."""
    return folder.is_dir() and any(one.stat().st_size for one in folder.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--kind", choices=EVIDENCE, action="append", default=[])
    parser.add_argument("--copied", action="store_true", help="with the times of copies")
    parser.add_argument("--wrong", action="store_true", help="a line for each answer not right")
    chosen = parser.parse_args()
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for place in sorted(chosen.recordings.iterdir()):
        if not (place / "truth.json").exists() or not all(w in place.name for w in chosen.only):
            continue
        truth = json.loads((place / "truth.json").read_text())
        for kind, names in EVIDENCE.items():
            paths = [place / name for name in names if holds_evidence(place / name)]
            # Evidence that a job did not leave adds nothing to the others'.
            if not paths or ("+" in kind and len(paths) < len(names)):
                continue
            if chosen.kind and kind not in chosen.kind:
                continue
            with tempfile.TemporaryDirectory() as scratch:
                read = copies(paths, Path(scratch)) if chosen.copied else paths
                word, said = judged(truth, diagnosed(read))
            counts[kind, truth["class"]][word] += 1
            if chosen.wrong and word != "right":
                print(f"{word:7}{kind:11}{place.name}: {said}", flush=True)
    words = ("right", "kind", "suspect", "unsure", "silent", "alarm", "wrong")
    print("| evidence | truth | jobs | " + " | ".join(words) + " |\n" + "|---" * 10 + "|")
    for (kind, truth_class), row in sorted(counts.items()):
        cells = " | ".join(str(row[word]) for word in words)
        print(f"| {kind} | {truth_class} | {row.total()} | {cells} |")


if __name__ == "__main__":
    main()
