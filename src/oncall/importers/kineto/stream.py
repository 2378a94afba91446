"""The events of a Chrome trace, one by one, however large it is.

Only a window of the text is in memory. Well-formed events are decoded together; where a window is
not, one by one. Damage has a place: where text is torn reading ends; where one event is no valid
JSON (Kineto does not escape every name) it is skipped.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from oncall.core.errors import Unreadable
from oncall.importers.bounds import DEFAULT, size
from oncall.importers.documents import JsonValues, check_json
from oncall.importers.files import Stream
from oncall.importers.kineto.events import Event, event_of, events_in

_CHUNK_BYTES = 1 << 20
# An error this near the end of the window may only mean that the rest is not read yet.
_LONGEST_STRING = 1 << 16
_GAP = re.compile(r"[\s,]*")
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|cat)"\s*:')
_BETWEEN = re.compile(r'\},\s*+(?=\{\s*+"(?:ph|cat|name)"\s*+:)')
_LAST_EVENTS = 1 << 14  # characters at the window's end, in which one event hardly ever fills all
_ENDS = "the file ends early,"
_HELD = 64  # characters that may begin an event whose rest is not read yet


class _TornError(Exception):
    """The text ends, or makes no sense any more; `resume` is where sense may begin again."""

    def __init__(self, message: str, resume: int) -> None:
        self.resume = resume
        super().__init__(message)


class TraceStream:
    """Iterates over the events of one trace.

    Afterwards `header` and `trailer` hold what stands before and behind the events, and `problem`
    what could not be read: where, and after how many events. `strange` events are no profiler's.
    Raises Unreadable if the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.header: dict[str, Any] = {}
        self.trailer: dict[str, Any] = {}
        self.problem: str | None = None
        self.events = 0
        self.strange = 0
        self._path = path
        self._values = JsonValues(fractions_as_text=True)
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._at = 0
        self._before = 0  # characters dropped before the window
        self._alone_until = 0  # the character up to which events are decoded one by one
        self._ended = False
        self._stopped: str | None = None
        self._skipped: list[int] = []

    def __iter__(self) -> Iterator[Event]:
        with Stream(self._path) as self._file:
            try:
                yield from self._document()
            except _TornError as error:
                self.problem = f"torn after {self.events:,} events: {error}"
            except Unreadable as error:
                self._stopped = str(error)
        if self._stopped:
            self.problem = f"stopped after {self.events:,} events: {self._stopped}"
        if self._skipped and self.problem is None:
            self.problem = (
                f"events skipped as they are not valid JSON: {len(self._skipped):,}, the first at "
                f"character {self._skipped[0]:,}"
            )

    # ---------------------------------------------------------------- grammar

    def _document(self) -> Iterator[Event]:
        if self._next() == "[":
            self._at += 1
            yield from self._array()
            return
        self._expect("{")
        beside = self.header
        while self._next() != "}":
            name = self._value()
            self._expect(":")
            if name == "traceEvents" and self._next() == "[":
                self._at += 1
                yield from self._array()
                beside = self.trailer
            else:
                beside[str(name)] = self._value()

    def _array(self) -> Iterator[Event]:
        while self._next() != "]":
            events = self._together()
            if not events and isinstance(value := self._event(), dict):
                events = [value]
            for event in events:
                self.events += 1
                try:
                    yield event if isinstance(event, Event) else event_of(event)
                except ValueError:
                    self.strange += 1
        self._at += 1

    def _together(self) -> Sequence[Event | dict[str, Any]]:
        """The events in the window but for the last, if all are well-formed."""
        if self._before + self._at < self._alone_until:
            return ()
        tail = max(self._at, len(self._text) - _LAST_EVENTS)
        ends = [found.start() + 1 for found in _BETWEEN.finditer(self._text, tail)]
        if not ends:
            self._alone_until = self._before + len(self._text)
            return ()
        events = events_in(f"[{self._text[self._at : ends[-1]]}]")
        if events is None:
            self._alone_until = self._before + ends[-1]
            return ()
        self._at = ends[-1]
        return events

    def _event(self) -> Any:
        """The next event; None for one that had to be skipped."""
        try:
            return self._value()
        except _TornError as error:
            place = self._before + self._at
            if not self._find_next_event(error.resume):
                raise
            self._skipped.append(place)
            self._file.meter.check_time()
            return None

    def _find_next_event(self, at: int) -> bool:
        """Go to the next event after `at`, a place beyond the damage: what lies before it was
        decoded once already."""
        while True:
            found = _NEXT_EVENT.search(self._text, at)
            if found:
                self._at = found.start()
                return True
            at = self._at = min(max(at, len(self._text) - _HELD), len(self._text))
            if not self._more():
                return False
            at = self._at

    def _expect(self, character: str) -> None:
        if self._next() != character:
            raise self._torn(f"no {character!r}", self._at)
        self._at += 1

    def _next(self) -> str:
        """The next character that is neither space nor comma; it stays the next one."""
        while True:
            gap = _GAP.match(self._text, self._at)
            self._at = gap.end() if gap else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                raise self._torn(_ENDS, self._at)

    def _value(self) -> Any:
        while True:
            self._next()
            try:
                value, end = self._values.at(self._text, self._at)
            except ValueError as error:
                place = self._before + getattr(error, "pos", self._at)
                left = self._before + len(self._text) - place
                # The window doubles, so that a value of any size is decoded anew a few times.
                if left < _LONGEST_STRING and self._more(self._held()):
                    continue
                what = getattr(error, "msg", str(error))
                is_cut = what.startswith("Unterminated") or not self._text[place - self._before :]
                raise self._torn(_ENDS if is_cut else what, place - self._before) from error
            except Unreadable as error:
                raise self._torn(str(error), self._at) from error
            # A number may go on.
            if end == len(self._text) and self._more(self._held()):
                continue
            self._at = end
            return value

    # ------------------------------------------------------------------- text

    def _held(self) -> int:
        """How much of the window the value at hand takes. Raises Unreadable beyond the bounds."""
        held = len(self._text) - self._at
        if held > DEFAULT.value_bytes:
            raise Unreadable(f"a single value of more than {size(DEFAULT.value_bytes)}")
        if held > _CHUNK_BYTES:
            check_json(self._text[self._at :])
        return held

    def _more(self, count: int = 0) -> bool:
        """Read on; False at the end. What lies before the place reached is dropped."""
        if self._ended:
            return False
        try:
            chunk = self._file.read(max(count, _CHUNK_BYTES))
        except Unreadable as error:
            self._stopped = str(error)
            chunk = b""
        self._ended = not chunk
        self._before += self._at
        self._text = self._text[self._at :] + self._utf8.decode(chunk, final=not chunk)
        self._at = 0
        return bool(chunk)

    def _torn(self, what: str, at: int) -> _TornError:
        return _TornError(f"{what} at character {self._before + at:,}", max(at, self._at + 1))
