"""What every target is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from oncall.core.errors import OncallError
from oncall.watch.announcement import Announcement

SEVERITIES = ("critical", "warning", "info")


class NotSent(OncallError):
    """A target did not accept an announcement; the message says why and holds no secret."""


class Target(Protocol):
    """Sends announcements, one at a time. `repeats`: it forgets what it is not sent again."""

    @property
    def name(self) -> str: ...

    @property
    def repeats(self) -> bool: ...

    def send(self, announcement: Announcement) -> None:
        """May block. Raises NotSent."""

    def shown(self, announcement: Announcement) -> str:
        """What would be sent, for `--dry-run`."""


def without(secrets: Sequence[str], text: str) -> str:
    """The text with each secret replaced, whole or in part: a token within a URL."""
    parts = {part for secret in secrets for part in (secret, *_parts(secret)) if len(part) >= 6}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "***")
    return text


def _parts(secret: str) -> list[str]:
    for sign in "/:@?&=#,":
        secret = secret.replace(sign, "\n")
    return secret.split()
