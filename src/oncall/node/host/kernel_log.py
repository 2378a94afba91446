"""Source `kernel_log`: faults that the kernel reports, read from /dev/kmsg.

Each record has a number, so records that were overwritten before they were read are counted, and a
restarted collector continues where its predecessor stopped. Lines that report no fault are not
kept; repeated faults are kept at a limited rate.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oncall.core.units import NS_PER_S
from oncall.evidence.codes.kernel_lines import known_line
from oncall.node.common.declaration import Polled, Surroundings, source
from oncall.node.common.own_thread import OwnThread
from oncall.node.common.rate_limit import RateLimits
from oncall.node.common.source import Collected, Instant, Source
from oncall.node.common.system_files import read_text, whole_number
from oncall.node.store.batch import of_rows
from oncall.node.store.bookmarks import Bookmark

_RECORD_BYTES = 8192  # no record is longer (PRINTKRB_RECORD_MAX)
_MOST_RECORDS = 2000  # at a reading: what parsing may cost a second
_HISTORY_NS = 3600 * NS_PER_S  # of what was said before the collector came
_A_MINUTE = 10  # rows of one code and device, on average, and at once
_MOST_TEXT = 400
_COLUMNS = ("node", "at_ns", "source", "code", "device", "text")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True)
class Record:
    """One line of the log; `logged_ns` is on the kernel's own clock, since boot."""

    sequence: int
    logged_ns: int
    text: str


class KernelLogSource(Source):
    """Rows of `host_events`, source `kernel`."""

    name = "kernel_log"

    def __init__(
        self, root: Path, node: str, every_ns: int, bookmarks: Mapping[str, Bookmark] | None = None
    ) -> None:
        """`bookmarks`: those that an earlier collector committed."""
        self.every_ns = every_ns
        self._path = root / "dev" / "kmsg"
        self._boot = _boot(root)
        self._node = node
        marks = bookmarks or {}
        # After a boot the numbers begin again.
        same_boot = marks.get("boot") == self._boot
        self._next = int(marks.get("next", 0)) if same_boot else 0
        self._fd: int | None = None
        self._is_empty = False
        self._limits = RateLimits(_A_MINUTE / 60, _A_MINUTE)
        self._dropped = 0
        self._read_up_to: Instant | None = None  # all that had been logged by then is read

    def collect(self, now: Instant) -> Collected:
        why_not = self._open()
        rows = []
        for record in self._records():
            if record.sequence < self._next:
                continue  # an earlier collector had it
            if self._next and record.sequence > self._next:
                self._dropped += record.sequence - self._next
            self._next = record.sequence + 1
            if row := self._row(record, now):
                rows.append(row)
        self._read_up_to = now if self._is_empty else None
        marks: dict[str, Bookmark] = {"next": self._next, "boot": self._boot}
        batches = [of_rows("host_events", _COLUMNS, rows)] if rows else []
        return Collected(batches, self._dropped, bookmarks=marks, notes=why_not)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> tuple[str, ...]:
        """Open the log if that was not done; says why it cannot be read."""
        if self._fd is None:
            try:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                may = error.errno in (errno.EPERM, errno.EACCES)
                how = "; run as root or with CAP_SYSLOG" if may else ""
                return (f"no kernel log: {self._path}: {error.strerror}{how}",)
        return ()

    def _records(self) -> Iterator[Record]:
        """What has been logged since the last reading, or a part of it: `_is_empty` tells."""
        self._is_empty = False
        for _ in range(_MOST_RECORDS):
            if self._fd is None:
                return
            try:
                content = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                self._is_empty = True
                return
            except OSError as error:
                if error.errno == errno.EPIPE:
                    continue  # overwritten before it was read: the next number gives the count
                self.close()
                return
            if not content:
                self._is_empty = True
                return
            yield from parse_records(content)

    def _row(self, record: Record, now: Instant) -> tuple[object, ...] | None:
        known = known_line(record.text)
        if known is None:
            return None
        at_ns = self._realtime_ns(record, now)
        if now.realtime_ns - at_ns > _HISTORY_NS:
            return None
        if not self._limits.allows((known.code, known.device), now.monotonic_ns):
            self._dropped += 1
            return None
        text = record.text[:_MOST_TEXT]
        return (self._node, at_ns, "kernel", known.code, known.device, text)

    def _realtime_ns(self, record: Record, now: Instant) -> int:
        """When it was logged, as Unix time. The kernel's clock for this drifts by seconds a day,
        but what is new was logged after the last reading, if that read all, and before this."""
        monotonic_ns = min(record.logged_ns, now.monotonic_ns)
        if self._read_up_to:
            monotonic_ns = max(monotonic_ns, self._read_up_to.monotonic_ns)
        return monotonic_ns + now.offset_ns


def parse_records(content: bytes) -> Iterator[Record]:
    """Records as /dev/kmsg hands them out: `priority,sequence,microseconds,flags;text`, and
    lines of properties, indented. What is none is passed over."""
    for line in content.decode("utf-8", "replace").splitlines():
        head, semicolon, text = line.partition(";")
        numbers = [whole_number(field) for field in head.split(",")[1:3]]
        if line.startswith(" ") or not semicolon or len(numbers) < 2:
            continue
        sequence, logged_us = numbers
        if sequence is not None and logged_us is not None and min(sequence, logged_us) >= 0:
            plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
            yield Record(sequence, logged_us * 1000, _printable(plain))


def _printable(text: str) -> str:
    """The text without control characters: programs can write to the log and could steer a
    terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _boot(root: Path) -> bytes:
    """Which boot this is; empty where it is unknown."""
    return (read_text(root / "proc" / "sys" / "kernel" / "random" / "boot_id") or "").encode()


@source("kernel_log", every="1 s")
def kernel_log(surroundings: Surroundings, options: Polled) -> Source:
    """Faults that the kernel logs."""
    root, node = surroundings.root, surroundings.node
    return OwnThread(KernelLogSource(root, node, options.every_ns, surroundings.bookmarks))
