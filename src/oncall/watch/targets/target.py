"""What every target is."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from oncall.core.errors import OncallError
from oncall.core.printable import harmless_values
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


# JSON over HTTP: one POST, its refusals in words that an engineer can act on.

_MOST_ANSWER = 200
_HINTS = {
    400: "it does not accept this document",
    401: "check the token",
    403: "check the token and what it may do",
    404: "check the URL",
    429: "too many requests",
}


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET, and a token would go where nobody sent it."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def post_json(
    url: str,
    document: Any,
    content_type: str = "application/json",
    token: str | None = None,
    timeout_s: float = 10.0,
) -> None:
    """POST the document. `token` becomes a bearer token. Raises NotSent."""
    headers = {"Content-Type": content_type, "User-Agent": "oncall"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    data = json.dumps(harmless_values(document), default=str).encode()
    request = urllib.request.Request(url, data, headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirects)
    place = urlsplit(url).netloc.rpartition("@")[2] or "the server"
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            answer.read(_MOST_ANSWER)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(_MOST_ANSWER).decode("utf-8", "replace").strip()
        hint = _HINTS.get(error.code, "")
        text = f"{place} refused it: HTTP {error.code}{f', {hint}' if hint else ''}"
        raise NotSent(_plain(f"{text}: {said}" if said else text, url, token)) from None
    except TimeoutError:
        raise NotSent(f"{place} did not answer within {timeout_s:g} s") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        reason = getattr(reason, "strerror", None) or reason
        raise NotSent(_plain(f"{place} cannot be reached: {reason}", url, token)) from None


def _plain(text: str, url: str, token: str | None) -> str:
    path = urlsplit(url)._replace(scheme="", netloc="").geturl()
    return without([path, *([token] if token else [])], " ".join(text.split()))
