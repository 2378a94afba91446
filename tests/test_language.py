"""The worst of our old language must not return: docs say what to write instead.

A phrase is a regular expression, found across line breaks and comment marks. Words with a
legitimate use (a PFC storm, an NCCL ring) are banned only as part of a phrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# What is checked, as globs from the root.
CHECKED = (
    "README.md",
    "docs/**/*.md",
    "dpa/*.[ch]",
    "hooks/*.[ch]",
    "rulebooks/**/*.yaml",
    "src/**/*.py",
)

# Folders that still use the old language: delete an entry as soon as its files are rewritten.
EXEMPT: tuple[str, ...] = ()


@dataclass(frozen=True)
class Phrase:
    """A phrase that may not appear, and what to write instead."""

    pattern: str
    instead: str

    @property
    def needed(self) -> str:
        """The longest word without which it cannot appear: most files are searched no further."""
        plain = re.sub(r"\\.|\([^()]*\)|\[[^]]*\]", " ", self.pattern)
        assert "|" not in plain
        return max(re.findall(r"[a-z]+(?![a-z?*])", plain), key=len, default="")


PHRASES = (
    # told
    Phrase(r"\b(it|this|that|which|what|who|when|whether[^.;:]{0,40}) cannot be told\b", "unknown"),
    Phrase(r"\bcan(not)? be told\b(?! apart)", "known; unknown"),
    Phrase(r"\bnot told by\b", "not reported by"),
    Phrase(r"\b(is|are|was) told by\b", "reported, measured, recorded, stated, logged by"),
    Phrase(r"\b(is|are) told\b(?! to| apart)", "reported, recorded, stated"),
    Phrase(r"\bnobody told\b", "not recorded"),
    Phrase(r"\b(?-i:as) told\b", "as configured, as reported"),
    Phrase(r"\btells? (who|what|which|where|how|when|whether)\b", "shows, says, reports"),
    Phrase(r"\btells? (none|nothing|no \w+)\b", "contains no, has no"),
    # hanging and waiting
    Phrase(r"\bstand(s|ing)? still\b", "hung, stopped"),
    Phrase(r"\bstood still\b", "hung, stopped"),
    Phrase(r"\bthe (training|job) stands\b", "the job hangs"),
    Phrase(r"\branks? (\d+ |that )?stands? in\b", "blocked in, waiting for"),
    Phrase(
        r"\b(where|in which) (it|they|everyone|a rank|the ranks) (stand|stood)s?\b", "blocked in"
    ),
    Phrase(r"\b(rank|ranks|it) (is|are) missing from\b", "never called, did not enter"),
    Phrase(r"\bwho hangs\b", "hangs, the rank that hangs"),
    Phrase(r"(?<!<)\bcircles?\b", "cycle (deadlock)"),
    # culprits
    Phrase(r"\bwho(ever)? is (responsible|to blame|at fault|suspected)\b", "culprit, root cause"),
    Phrase(r"\bthose (that|who) wait\b", "affected ranks, victims"),
    Phrase(r"\bthe slow one\b", "straggler"),
    Phrase(r"\bwho is slow\b", "straggler"),
    # absence of data
    Phrase(r"\bnothing was heard\b", "no data, not observed"),
    Phrase(r"\b(nobody|no one) heard\b", "not observed"),
    Phrase(r"\b(was|were|is|are) (not |un)heard\b", "not observed"),
    Phrase(r"\bsilent (host|node|rank)s?\b", "hosts that did not answer, ranks without data"),
    Phrase(r"\basks nobody\b", "does not query"),
    Phrase(r"\bsilence (is|means)\b", "no data"),
    Phrase(r"\bnot there to be seen\b", "not observed"),
    # the field's words
    Phrase(r"\bgroups? at work\b", "process group, communicator"),
    Phrase(r"\bcompanies\b", "communicators"),
    Phrase(r"\btransfers? of pairs\b", "send/recv, point-to-point"),
    Phrase(r"\b(?-i:[Aa]s) usual\b", "at the baseline"),
    Phrase(r"\bthan usual\b", "than the baseline"),
    Phrase(r"\b(rulebook|draft)s? (on|from) the (shelf|desk)\b", "rulebook store, draft store"),
    Phrase(r"\bfair share\b", "threshold, share of the link"),
    Phrase(r"\bwhat it cost\b", "lost time"),
    Phrase(r"\bthe job's own limit\b", "watchdog timeout"),
    # riddles and inversions
    Phrase(r"\bnothing is told\b", "no data"),
    Phrase(r"\bwhat became of\b(?! (each|the) host)", "the outcome of"),
    Phrase(r"\bgoes by (the|its|what)\b", "uses"),
    Phrase(r"\bis it certain\b", "is the job hung (at least ... likely)?"),
    Phrase(r"\bwhat (came|comes) of\b", "the outcome of"),
    Phrase(r"\b(let|lets|letting) go of\b", "close, release, forget"),
    Phrase(r"\bas ever\b", "as before"),
    Phrase(r"\bnot here to be seen\b", "what this node does not have"),
    Phrase(r"\bwho comes late\b", "which rank is late"),
    Phrase(
        r"\b(as|where) (they|ranks) (all )?rightly\b", "as ranks do while one saves a checkpoint"
    ),
    Phrase(r"\bif they still do, that\b", "if they still wait, this"),
    Phrase(r"\bwould iterations be shorter without\b", "does a replay show what it costs"),
    Phrase(r"\b(?-i:[Ss]o|[Aa]s) says\b", "according to"),
    Phrase(r"\bof which nothing is known\b", "unknown"),
    Phrase(r"\bis (nobody's|whoever's)\b", "has no owner"),
    Phrase(r"\bdo(es)? not come off\b", "fail"),
    Phrase(r"\bdid not come off\b", "failed"),
    Phrase(r"\bour key (there|is)\b", "your key"),
    Phrase(r"\bits last words\b", "its output"),
    Phrase(r"\banswered nonsense\b", "sent an invalid answer"),
    Phrase(r"\bis no (setting|host name|set of|text|regular file)\b", "is not a ..."),
)


# Words that no name may contain (`ends_told`, `TaskCompany`), and what to write instead.
WORDS = {
    "told": "reported, measured, recorded, stated, logged, configured",
    "untold": "not reported, not recorded, unknown",
    "telling": "significant, or what it shows",
    "standing": "blocked, current, queued, or what it is",
    "company": "communicator, process group",
    "companies": "communicators, process groups",
    "usual": "baseline, normal, median, default, or what it is",
    "unusual": "abnormal, beyond the baseline",
    "heard": "observed, reporting, answered, received",
    "unheard": "not observed, not reported, without an answer",
}
# English as words, but not as names: `gpu_signs`, `usually = ...`.
ENDINGS = {
    r"[a-z]_signs\b": "symptoms",
    r"_usually\b|\busually_|\busually(?= (=|AS) |: (?!float = decides))": "baseline, normal",
}
# Parameters keep the names by which the files of a site set them.
KEPT = re.compile(r"\busual_(alone|transfer)\b|\blimits\.heard\b|\bheard(?=: float = decides)")
NAMED = (
    "benchmarks/*.[ch]",
    "benchmarks/*.py",
    "dpa/**/*.[ch]",
    "fixtures/**/*.[ch]",
    "fixtures/*.py",
    "hooks/*.[ch]",
    "lab/**/*.py",
    "rulebooks/**/*.yaml",
    "src/**/*.py",
    "tests/**/*.[ch]",
    "tests/**/*.py",
)


@cache
def _checked_texts() -> dict[Path, str]:
    """The prose of each file, read once for all phrases."""
    files = {path for pattern in CHECKED for path in ROOT.glob(pattern)}
    named = {path: path.relative_to(ROOT).as_posix() for path in files}
    checked = sorted(path for path, name in named.items() if not name.startswith(EXEMPT))
    return {path: _prose(path.read_text(encoding="utf-8")) for path in checked}


def _prose(text: str) -> str:
    """The text with comment marks, quotes between lines and indentation as spaces, so that a
    phrase that is wrapped is found; every character keeps its line."""
    return re.sub(r'\n[ \t]*(?:#|//|\*|f?")?', lambda found: "\n" + " " * (len(found[0]) - 1), text)


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.pattern)
def test_a_banned_phrase_does_not_appear(phrase: Phrase) -> None:
    pattern = re.compile(phrase.pattern.replace(" ", r"\s+"), re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}"
        for path, text in _checked_texts().items()
        if phrase.needed in text.lower()
        for match in pattern.finditer(text)
    ]
    assert not found, f"write {phrase.instead!r} instead:\n" + "\n".join(found)


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """The words of a text and of the names in it, snake or camel case, in lower case, with their
    lines."""
    for number, line in enumerate(text.splitlines(), 1):
        for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", KEPT.sub("", line)):
            yield part.lower(), number


def _named_texts() -> Iterator[tuple[Path, str]]:
    for pattern in NAMED:
        for path in sorted(ROOT.glob(pattern)):
            if path != Path(__file__):
                yield path, path.read_text(encoding="utf-8")


def test_a_name_is_split_into_words() -> None:
    words = [word for word, _ in _parts("ends_told _TOLD RankTold toldHere HTTPTold outstanding")]
    assert words.count("told") == 5 and "standing" not in words


def test_no_name_comment_or_text_has_a_banned_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word!r}: write {WORDS[word]}"
        for path, text in _named_texts()
        for word, line in _parts(text)
        if word in WORDS
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("pattern", ENDINGS)
def test_no_name_ends_in_a_banned_word(pattern: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}: write {ENDINGS[pattern]}"
        for path, text in _named_texts()
        for match in re.finditer(pattern, text)
    ]
    assert not found, "\n".join(found)
