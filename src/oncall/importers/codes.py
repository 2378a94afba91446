"""Words as numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class Codes(dict[Any, int]):
    """A vocabulary in the making: looking a word up gives its code, a new word the next one."""

    def __missing__(self, word: Any) -> int:
        self[word] = code = len(self)
        return code

    def of(self, words: Iterable[Any]) -> np.ndarray[Any, Any]:
        """The codes of words, int32 (n,)."""
        return np.fromiter(map(self.__getitem__, words), dtype=np.int32)
