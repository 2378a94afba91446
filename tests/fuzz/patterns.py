"""Every regular expression of the package, and texts that are made to keep each of them busy.

For each part of a pattern that repeats without a small bound, a text is made of what stands before
it, of what it repeats, many times, and of an end at which the match fails: what backtracks does so
from there. Which characters are repeated matters where two parts can both take them, so one of
every kind that the pattern tells apart is tried.
"""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import oncall

SOURCE = Path(oncall.__file__).parent
_MANY = 32  # repeats of fewer are as good as none
# What a pattern may tell apart, and an end at which few match.
_ALPHABET = [*map(chr, range(32, 127)), "\t", "\n", "\0", "\x1b", "\xe9", "\u2502"]
_END = "\n\0"


@dataclass(frozen=True)
class Pattern:
    """A regular expression of the package, and where it is compiled."""

    text: str
    flags: int
    is_bytes: bool
    where: str
    only_matched: bool  # where a text begins; others are searched for, from every place of it

    @cached_property
    def compiled(self) -> re.Pattern[Any]:
        """As the package has it."""
        return re.compile(self.text.encode("latin-1") if self.is_bytes else self.text, self.flags)

    def meet(self, text: str) -> None:
        """Look for it in the text in the ways in which the package does."""
        subject = text.encode() if self.is_bytes else text
        self.compiled.fullmatch(subject)
        if not self.only_matched:
            self.compiled.search(subject)


# ------------------------------------------------------------------- patterns


@cache
def patterns() -> list[Pattern]:
    """All, by where they are: those that modules compile as they are imported, in a process of its
    own whose compiler is listened to, and those that functions compile, as they are written."""
    asked = [sys.executable, "-c", "from tests.fuzz.patterns import listen; listen()"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=SOURCE.parents[1])
    found = [Pattern(*one) for one in json.loads(done.stdout.splitlines()[-1])]
    return sorted(found, key=lambda one: (one.where, one.text))


def listen() -> None:
    """Print what the package compiles while it is imported, and in its functions."""
    found: dict[tuple[Any, int], tuple[str, bool]] = {}
    compiler = re._compiler  # type: ignore[attr-defined]
    compile_ = compiler.compile

    def listening(pattern: Any, flags: int = 0) -> Any:
        where = _caller()
        if where is not None and isinstance(pattern, (str, bytes)):
            found.setdefault((pattern, int(flags)), (_place(where), _only_matched(where)))
        return compile_(pattern, flags)

    compiler.compile = listening
    re.purge()
    for name in [name for name in sys.modules if name.partition(".")[0] == "oncall"]:
        del sys.modules[name]
    for module in pkgutil.walk_packages([str(SOURCE)], "oncall."):
        if not module.name.endswith("__main__"):
            _note_written(importlib.import_module(module.name), found)
    rows = [
        (p.decode("latin-1") if isinstance(p, bytes) else p, flags, isinstance(p, bytes), *how)
        for (p, flags), how in found.items()
    ]
    print("\n" + json.dumps(rows))


def _caller() -> tuple[Path, int] | None:
    """The place in the package that compiles."""
    frame = sys._getframe(2)
    while frame is not None and Path(frame.f_code.co_filename).parent.name == "re":
        frame = frame.f_back  # type: ignore[assignment]
    file = Path(frame.f_code.co_filename)
    return (file, frame.f_lineno) if SOURCE in file.parents else None


def _place(where: tuple[Path, int]) -> str:
    return f"{where[0].relative_to(SOURCE)}:{where[1]}"


def _only_matched(where: tuple[Path, int]) -> bool:
    """Whether the name that a pattern gets in its module is only ever asked to match."""
    file, line = where
    nodes = list(ast.walk(_tree(file)))
    names = [
        node.targets[0].id
        for node in nodes
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Call)
        and node.lineno <= line <= (node.end_lineno or line)
    ]
    if not names or not names[0].startswith("_"):
        return False
    named = [node for node in nodes if isinstance(node, ast.Name) and node.id == names[0]]
    asked = [
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == names[0]
    ]
    return len(asked) == len(named) - 1 and set(asked) <= {"match", "fullmatch"}


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes())


def _note_written(module: Any, found: dict[tuple[Any, int], tuple[str, bool]]) -> None:
    """The first arguments of `re.search(...)` and the like within functions, as far as the module's
    own names tell them."""
    file = Path(module.__file__)
    for call in _calls_in_functions(_tree(file)):
        assert isinstance(call.func, ast.Attribute)
        try:
            pattern = eval(ast.unparse(call.args[0]), dict(vars(module)))
        except NameError:  # of a local name: compiled by whoever calls it, or as it is imported
            continue
        if isinstance(pattern, (str, bytes)):
            given = [ast.unparse(one) for one in (*call.args, *(k.value for k in call.keywords))]
            flags = sum(int(getattr(re, one[3:])) for one in given if re.match(r"re\.[A-Z]+$", one))
            only_matched = call.func.attr in ("match", "fullmatch")
            found.setdefault((pattern, flags), (_place((file, call.lineno)), only_matched))


def _calls_in_functions(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls of the module `re` with arguments."""
    functions = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)]
    for call in (node for function in functions for node in ast.walk(function)):
        match call:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="re")), args=[_, *_]):
                yield call


# -------------------------------------------------------------------- attacks


@dataclass(frozen=True)
class Attack:
    """What is repeated, and what stands before it."""

    before: str
    unit: str

    def text(self, length: int) -> str:
        """It, of about so many characters."""
        return self.before + self.unit * (length // len(self.unit)) + _END


def attacks(pattern: Pattern) -> list[Attack]:
    """All of a pattern, each once."""
    tree = parser.parse(pattern.compiled.pattern, pattern.flags)
    found: dict[Attack, None] = {}
    for letter in _letters(tree):
        sampler = _Sampler(letter, tree.state.flags)
        for before, body in sampler.repeats(tree):
            unit = sampler.text(body) or letter
            if letter in unit:
                for whole in (unit, before + unit):
                    same = len(set(whole)) == 1
                    found[Attack(before, whole[0] if same else whole)] = None
    return list(found)


def _letters(tree: Any) -> list[str]:
    """One character of each kind that what repeats tells apart, of those that any of it takes."""
    sets = {str(item): item for body in _repeated(tree) for item in _sets(body)}.values()
    kinds: dict[tuple[bool, ...], str] = {}
    for letter in _ALPHABET:
        kind = tuple(_takes(one, letter, tree.state.flags) for one in sets)
        if any(kind):
            kinds.setdefault(kind, letter)
    return list(kinds.values())


def _repeated(tree: Any) -> Iterator[Any]:
    """What is repeated many times anywhere in the tree."""
    for code, value in tree:
        if code in _REPEATS and value[1] > _MANY:
            yield value[2]
        else:
            for inner in _inner(code, value):
                yield from _repeated(inner)


def _sets(tree: Any) -> Iterator[Any]:
    """Every item of the tree that takes one character."""
    for code, value in tree:
        if code in _ONE:
            yield code, value
        for inner in _inner(code, value):
            yield from _sets(inner)


_ONE = (op.LITERAL, op.NOT_LITERAL, op.IN, op.ANY)
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


def _inner(code: Any, value: Any) -> list[Any]:
    """The trees within an item."""
    if code in _REPEATS:
        return [value[2]]
    if code is op.SUBPATTERN:
        return [value[3]]
    if code is op.ATOMIC_GROUP:
        return [value]
    if code is op.BRANCH:
        return list(value[1])
    if code in (op.ASSERT, op.ASSERT_NOT):
        return [value[1]]
    if code is op.GROUPREF_EXISTS:
        return [one for one in value[1:] if one is not None]
    return []


def _takes(item: Any, letter: str, flags: int) -> bool:
    """Whether an item of one character takes this one."""
    code, value = item
    if code is op.ANY:
        return letter != "\n" or bool(flags & re.DOTALL)
    if code is op.LITERAL:
        return chr(value) == letter or (
            bool(flags & re.IGNORECASE) and chr(value).lower() == letter.lower()
        )
    if code is op.NOT_LITERAL:
        return chr(value) != letter
    negated = value[0][0] is op.NEGATE
    return negated ^ any(_part_takes(part, letter, flags) for part in value[negated:])


_CATEGORIES = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_WORD: lambda letter: letter.isalnum() or letter == "_",
}
_CATEGORIES |= {
    op.CATEGORY_NOT_DIGIT: lambda letter: not letter.isdigit(),
    op.CATEGORY_NOT_SPACE: lambda letter: not letter.isspace(),
    op.CATEGORY_NOT_WORD: lambda letter: not (letter.isalnum() or letter == "_"),
}


def _part_takes(part: Any, letter: str, flags: int) -> bool:
    code, value = part
    if code is op.RANGE:
        letters = {letter, letter.swapcase()} if flags & re.IGNORECASE else {letter}
        return any(value[0] <= ord(one) <= value[1] for one in letters if len(one) == 1)
    if code is op.CATEGORY:
        return bool(_CATEGORIES[value](letter))
    return _takes(part, letter, flags)


@dataclass(frozen=True)
class _Sampler:
    """Makes what a pattern takes, of one letter wherever that will do."""

    letter: str
    flags: int

    def text(self, tree: Any) -> str:
        """The shortest that the tree takes, about."""
        return "".join(self._of(code, value) for code, value in tree)

    def _of(self, code: Any, value: Any) -> str:
        if code in _ONE:
            if _takes((code, value), self.letter, self.flags):
                return self.letter
            return next((x for x in _ALPHABET if _takes((code, value), x, self.flags)), "")
        if code in _REPEATS:
            return self.text(value[2]) * value[0]
        if code is op.BRANCH:
            return min(map(self.text, value[1]), key=self._foreign)
        if code in (op.SUBPATTERN, op.ATOMIC_GROUP):
            return self.text(_inner(code, value)[0])
        if code is op.ASSERT and value[0] < 0:
            return self.text(value[1])
        return ""

    def _foreign(self, text: str) -> tuple[int, int]:
        return len(text) - text.count(self.letter), len(text)

    def repeats(self, tree: Any, before: str = "") -> Iterator[tuple[str, Any]]:
        """What is repeated many times anywhere in the tree, and a text that leads to it."""
        for code, value in tree:
            if code in _REPEATS and value[1] > _MANY:
                yield before, value[2]
            for inner in _inner(code, value):
                yield from self.repeats(inner, before)
            before += self._of(code, value)


# ----------------------------------------------------------------- how it grows

_LINE = 1 << 13  # the longest line that is read
_TIMES_AS_LONG = 16
# Who takes the length of a text takes as long for this many lines as for all of them in one; who
# takes its square takes 16 times as long for the latter.
_MOST_GROWN = 6.0
_NO_TIME_S = 0.06  # of CPU: nobody need look closer, and clocks may be coarse
LONG_S = 2.0  # even one that takes no more than its length may not take


class _TooLong(BaseException):
    """No handler of the package's catches it."""


def superlinear(pattern: Pattern) -> str | None:
    """The beginning of a text whose square or more a pattern takes, if there is one. Call it in the
    main thread."""
    for attack in attacks(pattern):
        text = attack.text(_LINE * _TIMES_AS_LONG)
        taken_s = _taken_s(pattern, text, 1)
        if taken_s < _NO_TIME_S:
            continue
        if taken_s >= LONG_S:
            return text[:80]
        lines_s = _taken_s(pattern, attack.text(_LINE), _TIMES_AS_LONG)
        if min(taken_s, _taken_s(pattern, text, 1)) > _MOST_GROWN * lines_s:
            return text[:80]
    return None


def _taken_s(pattern: Pattern, text: str, times: int) -> float:
    """CPU time that looking for a pattern in a text takes, so many times; `LONG_S` at most."""

    def ring(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, LONG_S)
        began = time.process_time()
        for _ in range(times):
            pattern.meet(text)
        taken_s = time.process_time() - began
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    except _TooLong:
        return LONG_S
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return taken_s
