"""Lines of one layout read as arrays: where a line has the words of another, its numbers are found
by counting spaces, for all lines at once.

A log has a line a call, and mostly one layout throughout. Lines of another one, and torn ones, are
left to the regular expression that says what a line is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_LINE_FEED, _RETURN, _SPACE, _ZERO = b"\n\r 0"


@dataclass(frozen=True)
class Lines:
    """Where the lines of a text begin and end (n,), its spaces, and how many come before each."""

    data: bytes
    text: Array  # the same as an array
    begin: Array
    end: Array
    spaces: Array
    before: Array

    @classmethod
    def of(cls, data: bytes) -> Lines:
        """The lines that end, without what comes after the last line feed."""
        text = np.frombuffer(data, dtype=np.uint8)
        end = np.flatnonzero(text == _LINE_FEED)
        begin = np.append(0, end + 1)[:-1]
        spaces = np.flatnonzero(text == _SPACE)
        return cls(data, text, begin, end, spaces, np.searchsorted(spaces, begin))

    def __len__(self) -> int:
        return len(self.begin)

    @cached_property
    def written(self) -> int:
        """How many are not empty, with what comes after the last line feed."""
        begins = self.begin
        if len(self.data) and self.text[-1] != _LINE_FEED:
            begins = np.append(begins, self.end[-1] + 1 if len(self.end) else 0)
        return int(np.isin(self.text[begins], (_LINE_FEED, _RETURN), invert=True).sum())

    @cached_property
    def words(self) -> Array:
        """How many words each has (n,)."""
        return np.searchsorted(self.spaces, self.end) - self.before + 1


class Layout:
    """The lines that are laid out as `like`, a line that a regular expression matches: with as many
    words, and equal to it but for the text of some groups.

    What is read of them has a value for each of the candidates `at` (k,), which count into all
    lines; `alike` (k,) are those whose text is what the groups allow, once all of it was read.
    """

    def __init__(self, lines: Lines, like: re.Match[bytes], groups: Sequence[str]) -> None:
        self._lines, self._like = lines, like
        self._words = like[0].removesuffix(b"\n").split(b" ")
        self._offsets = np.cumsum([0, *(len(word) + 1 for word in self._words)]) + like.start()
        self.at = np.flatnonzero(lines.words == len(self._words))
        first, inner = lines.before[self.at], range(len(self._words) - 1)
        between = [lines.spaces[first + place] for place in inner]  # one word and the next
        self._begin = [lines.begin[self.at], *(space + 1 for space in between)]
        self._end = [*between, lines.end[self.at]]
        self.alike = np.ones(len(self.at), dtype=np.bool_)
        places = [self._place(group) for group in groups]
        for number, word in enumerate(self._words):
            self._compare(number, word, [each[1:] for each in places if each[0] == number])

    def number(self, group: str, most: int) -> Array:
        """The numbers that a group has as decimal digits, at most so many: int64 (k,)."""
        begin, end = self._span(group)
        width = end - begin
        self.alike &= (width > 0) & (width <= most)
        value = np.zeros(len(begin), dtype=np.int64)
        for place in range(min(most, int(width.max(initial=0)))):
            inside = place < width
            digit = self._byte(begin + place) - np.uint8(_ZERO)
            if inside.all():
                self.alike &= digit < 10
                value = value * 10 + digit
            else:
                self.alike &= (digit < 10) | ~inside
                value = np.where(inside, value * 10 + digit, value)
        return value

    def texts(self, group: str, allowed: re.Pattern[bytes]) -> list[bytes]:
        """The texts of a group (k,)."""
        data = self._lines.data
        begin, end = (place.tolist() for place in self._span(group))
        found = [data[each:until] for each, until in zip(begin, end, strict=True)]
        strange = {text for text in set(found) if not allowed.fullmatch(text)}
        if strange:
            self.alike &= [text not in strange for text in found]
        return found

    def _place(self, group: str) -> tuple[int, int, int]:
        """The word that holds a group, and how many bytes of it come before and after."""
        begin, end = self._like.span(group)
        word = int(np.searchsorted(self._offsets, begin, side="right")) - 1
        before = begin - int(self._offsets[word])
        return word, before, len(self._words[word]) - before - (end - begin)

    def _span(self, group: str) -> tuple[Array, Array]:
        word, before, after = self._place(group)
        return self._begin[word] + before, self._end[word] - after

    def _compare(self, number: int, word: bytes, held: Sequence[tuple[int, int]]) -> None:
        """Whether lines have a word as it is, but for the one group that it holds. With several it
        must be as long, and what is between them the same."""
        begin, end = self._begin[number], self._end[number]
        if len(held) == 1:
            ((before, after),) = held
            self.alike &= end - begin > before + after
            self._same(begin, word[:before])
            self._same(end - after, word[len(word) - after :])
            return
        self.alike &= end - begin == len(word)
        for place, byte in enumerate(word):
            if not any(before <= place < len(word) - after for before, after in held):
                self._same(begin + place, bytes([byte]))

    def _same(self, begin: Array, text: bytes) -> None:
        for place, byte in enumerate(text):
            self.alike &= self._byte(begin + place) == byte

    def _byte(self, at: Array) -> Array:
        return self._lines.text.take(at, mode="clip")
