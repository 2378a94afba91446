"""Time stamps of log lines, read as UTC unless they state an offset. A missing
year is taken from another line of the file, else from when the file was written."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"],
        start=1,
    )
}
_SLACK = timedelta(days=1)  # zones, and clocks that differ
STAMP = re.compile(
    rb"^[^\n]{0,60}?\b"
    rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:(?:[.,]\d{1,9})?[+-]\d\d:?\d\d\b)?)",
    re.MULTILINE,
)
_ISO = re.compile(r"(\d{4})\D(\d\d)\D(\d\d)\D(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?([+-]\d\d:?\d\d)?")


class Clock:
    """Reads the stamps of one file."""

    def __init__(self, written_ns: int | None) -> None:
        self._written = datetime.fromtimestamp((written_ns or 0) / 1e9, UTC)
        self._year: int | None = None

    def iso(self, text: str) -> int | None:
        """`2026-03-11T04:41:20.911`, with a comma, a blank or an underscore as well; an
        offset from UTC at its end counts."""
        found = _ISO.match(text)
        if found is None:
            return None
        *parts, fraction, zone = found.groups()
        at = _instant([int(part) for part in parts], fraction)
        if at is not None:
            self._year = int(parts[0])
            at -= _offset_ns(zone) if zone else 0
        return at

    def month_day(self, day: str, time: str | None) -> int | None:
        """c10's `E816 01:45:40.183`: the month unpadded, the day of two digits, no year."""
        return self._without_year(int(day[:-2] or 0), int(day[-2:]), time or "00:00:00")

    def syslog(self, text: str) -> int | None:
        """`Feb 23 16:24:18`, or dmesg's `Sun Feb 23 16:24:18 2025`."""
        found = re.search(r"([A-Z][a-z]{2}) +(\d+) (\d\d:\d\d:\d\d)(?: (\d{4}))?$", text)
        if found is None or found[1] not in MONTHS:
            return None
        if found[4]:
            return self.iso(f"{found[4]}-{MONTHS[found[1]]:02}-{int(found[2]):02} {found[3]}")
        return self._without_year(MONTHS[found[1]], int(found[2]), found[3])

    def _without_year(self, month: int, day: int, time: str) -> int | None:
        whole, _, fraction = time.strip().partition(".")
        parts = [month, day, *(int(part) for part in whole.split(":"))]
        at = _instant([self._year or self._written.year, *parts], fraction)
        if at is None or self._year is not None:
            return at
        latest_ns = int((self._written + _SLACK).timestamp()) * 10**9
        return at if at <= latest_ns else _instant([self._written.year - 1, *parts], fraction)


def _offset_ns(zone: str) -> int:
    """What `+0100` or `-05:30` is ahead of UTC."""
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return (-minutes if zone[0] == "-" else minutes) * 60 * 10**9


def _instant(parts: list[int], fraction: str | None) -> int | None:
    year, month, day, hour, minute, second = parts
    try:
        at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    if year < 2000:
        return None
    return int(at.timestamp()) * 10**9 + int((fraction or "0").ljust(9, "0")[:9])
