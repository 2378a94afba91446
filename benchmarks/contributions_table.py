"""docs/contributions.md from what `benchmarks/contributions.py ablate` found: first what decides
nothing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from contributions_ablation import CHANGES, FACTOR, KINDS, facts
from contributions_recordings import TOP

from oncall.evidence.registry import all_relations

COLUMNS = ("ran", "fired", "behind", "tried", *CHANGES[:3])
# Why something decides nothing, from the plainest on.
NEVER = (
    "never could run",
    "could run, never had rows",
    "had rows, never behind a root",
    "behind a root, changed none",
    "behind a root, not tried",
)
_HEAD = f"""# What each part contributes

Whether relations, facts, rulebooks and parameters decide anything, over recordings with and
without faults. In how many of them a part

- **could run**: what it reads had rows (of a parameter: what uses it could run);
- **fired**: it had rows (of a rulebook: a case started) in a diagnosis, which makes only what is
  asked for;
- stood **behind** a root: its rows lead to a finding that no other explains and that is no
  information;
- **changed** the roots when it was emptied (a rulebook: switched off; a parameter: divided by
  {FACTOR:g}, and multiplied): they are (rulebook, verdict, blame), and may be lost, gained, others.
  **exit**: only the exit code changed; **beside**: only a confidence, a severity, a consequence or
  information did.

Each was **tried** in some of the recordings in which it fired, most of them where it was behind a
root. What changed nothing decides nothing *here*: it may be a sentence or a picture, stand beside
others that say the same, or wait for evidence that no recording has. **needed by**: the first test
of a rulebook that fails when it is empty.
"""


@dataclass(frozen=True)
class Row:
    """One part, with the number of recordings of each sort."""

    name: str
    ran: int
    fired: int
    behind: int
    tried: int
    root: int
    exit: int
    finding: int

    @property
    def decides(self) -> bool:
        return self.root + self.exit + self.finding > 0

    @property
    def why_not(self) -> str:
        """One of NEVER."""
        if not self.behind:
            return NEVER[0 if not self.ran else 1 if not self.fired else 2]
        return NEVER[3 if self.tried else 4]


def table_of(found: Mapping[str, Any]) -> str:
    """The page, of what `record` and `ablate` write."""
    answers = found["recordings"]
    rows = {kind: list(_rows(kind, found)) for kind in KINDS}
    kinds = Counter(one["kind"] for one in answers.values() if "error" not in one)
    sorts = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    tried = sum(row.tried for of in rows.values() for row in of)
    command = " ".join(["python benchmarks/contributions.py", *found["arguments"]])
    parts = [
        _HEAD,
        f"`{command}`,\n{found['date']}, commit {found['commit']}: "
        f"{sum(kinds.values())} recordings ({sorts}), {tried:,} ablations.\n",
        *_summary(rows),
        "\n## Relations that decide nothing\n",
        *_relations(rows["relation"], found.get("owners", {})),
        "\n## Relations that decide\n",
        *_deciding(rows["relation"]),
        "\n## Rulebooks\n",
        *_deciding(rows["rulebook"], everything=True),
        "\n## Facts that decide nothing, by rulebook\n",
        *_grouped(rows["fact"]),
        "\n## Parameters that decide nothing, by relation or rulebook\n",
        *_grouped(rows["param"]),
    ]
    return "\n".join(parts) + "\n"


def _rows(kind: str, found: Mapping[str, Any]) -> Iterator[Row]:
    seen: dict[str, Counter[str]] = defaultdict(Counter)
    for answer in found["recordings"].values():
        for word in ("ran", "fired", "behind"):
            for name in answer.get(word, {}).get(kind, ()):
                seen[name][word] += 1
        for name, changed in answer.get("ablated", {}).get(kind, {}).items():
            seen[name]["tried"] += 1
            seen[name][changed] += 1
    for name in found["known"][kind]:
        of = seen[name]
        yield Row(name, *(of[word] for word in COLUMNS))


def _summary(rows: Mapping[str, list[Row]]) -> Iterator[str]:
    yield f"| | all | changed a root | only the exit code | only beside | {' | '.join(NEVER)} |"
    yield "|---|" + "---|" * (4 + len(NEVER))
    for kind, of in rows.items():
        why = Counter(row.why_not for row in of if not row.decides)
        most = Counter(next((w for w in CHANGES[:3] if getattr(row, w)), "") for row in of)
        counts = [len(of), *(most[word] for word in CHANGES[:3]), *(why[word] for word in NEVER)]
        yield f"| {kind}s | {' | '.join(map(str, counts))} |"


def idle_relations(found: Mapping[str, Any]) -> list[str]:
    """Those of today that decided nothing."""
    return [
        row.name
        for row in _rows("relation", found)
        if not row.decides and row.name in all_relations()
    ]


def _relations(rows: Iterable[Row], owners: Mapping[str, str]) -> Iterator[str]:
    yield "| relation | could run | fired | behind | tried | read by | needed by |"
    yield "|---|---|---|---|---|---|---|"
    idle = [row for row in rows if not row.decides and row.name in all_relations()]
    for row in sorted(idle, key=lambda row: (NEVER.index(row.why_not), row.behind, row.name)):
        numbers = f"{row.ran} | {row.fired} | {row.behind} | {row.tried}"
        readers = ", ".join(_readers(row.name)) or "nobody"
        yield f"| {row.name} | {numbers} | {readers} | {owners.get(row.name, '')} |"


def _deciding(rows: Iterable[Row], everything: bool = False) -> Iterator[str]:
    """Those that decide, the ones that seldom do first."""
    yield "| | could run | fired | behind | changed, of tried | exit | beside |"
    yield "|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: (row.root / max(row.tried, 1), row.fired, row.name)):
        if row.decides or everything:
            yield (
                f"| {row.name} | {row.ran} | {row.fired} | {row.behind} | {row.root} of {row.tried}"
                f" | {row.exit or ''} | {row.finding or ''} |"
            )


def _grouped(rows: Iterable[Row]) -> Iterator[str]:
    """A line for each owner: its parts that decide nothing, by why."""
    of: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    all_of: Counter[str] = Counter()
    for row in rows:
        owner, _, name = row.name.partition(".")
        all_of[owner] += 1
        if not row.decides:
            of[owner][row.why_not].append(f"{name} ({row.tried})" if row.tried else name)
    yield f"| | of | {' | '.join(NEVER[:4])} |"
    yield "|---|" + "---|" * 5
    for owner, idle in sorted(of.items()):
        known = [idle[word] for word in NEVER]
        columns = [*known[:3], [*known[3], *(f"{name} (0)" for name in known[4])]]
        texts = ["all" if len(names) == all_of[owner] > 1 and not any("(" in n for n in names)
                 else ", ".join(names) for names in columns]  # fmt: skip
        yield f"| {owner} | {all_of[owner]} | {' | '.join(texts)} |"


@cache
def _sources() -> dict[str, str]:
    """The source text of every room that may read relations, by its name."""
    rooms: dict[str, str] = defaultdict(str)
    for path in sorted((TOP / "src" / "oncall").rglob("*.py")):
        room = path.relative_to(TOP / "src" / "oncall").parts[0]
        if room not in ("analysis", "rules"):
            rooms[room] += path.read_text()
    return rooms


def _readers(name: str) -> Iterator[str]:
    """Who reads a relation: facts, relations, rooms of the program."""
    by_facts = [fact for fact, sql in facts().items() if name in sql.tables]
    by_relations = [entry.name for entry in all_relations().values() if name in entry.inputs]
    for readers, word in ((by_facts, "facts"), (by_relations, "relations")):
        if readers:
            yield readers[0] if len(readers) == 1 else f"{len(readers)} {word}"
    named = re.compile(rf'"{name}"|\b(FROM|JOIN) "?{name}\b')
    yield from (f"{room}/" for room, text in _sources().items() if named.search(text))
