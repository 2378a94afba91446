"""Times typed on the command line."""

from __future__ import annotations

from datetime import UTC, date, datetime, time

from oncall.core.errors import UsageError


def parse_instant(text: str, last_ns: int) -> int:
    """Unix time in ns of an ISO 8601 date and time, or of a time on the day of `last_ns`; UTC
    unless it has an offset. Raises UsageError."""
    try:
        if "T" in text or " " in text.strip():
            moment = datetime.fromisoformat(text.strip())
        else:
            day: date = datetime.fromtimestamp(last_ns // 10**9, UTC).date()
            moment = datetime.combine(day, time.fromisoformat(text))
    except ValueError:
        raise UsageError(
            f"--at {text}: expected a time such as 2026-11-20T03:10:00 or 03:10:00 (UTC)"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    # A whole second includes all of it: what the screen shows as 03:10:00 is in the window.
    return int(moment.timestamp()) * 10**9 + (moment.microsecond * 1000 or 10**9 - 1)
