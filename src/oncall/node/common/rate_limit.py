"""Rate limits: token buckets that fill with time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

from oncall.core.units import NS_PER_S


@dataclass
class RateLimit:
    """At most `per_second` on average, and `burst` at once. The caller passes the time."""

    per_second: float
    burst: float
    _tokens: float = -1.0
    _at_ns: int = 0

    def allows(self, now_ns: int) -> bool:
        """Whether it may happen now; if so, that counts."""
        if self._tokens < 0:
            self._tokens, self._at_ns = self.burst, now_ns
        passed_s = max(0, now_ns - self._at_ns) / NS_PER_S
        self._tokens = min(self.burst, self._tokens + passed_s * self.per_second)
        self._at_ns = max(self._at_ns, now_ns)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class RateLimits:
    """One limit per client, of which only the newest `most` are remembered."""

    def __init__(self, per_second: float, burst: float, most: int = 1024) -> None:
        self._per_second, self._burst, self._most = per_second, burst, most
        self._limits: OrderedDict[Hashable, RateLimit] = OrderedDict()

    def allows(self, who: Hashable, now_ns: int) -> bool:
        limit = self._limits.pop(who, None) or RateLimit(self._per_second, self._burst)
        self._limits[who] = limit
        if len(self._limits) > self._most:
            self._limits.popitem(last=False)
        return limit.allows(now_ns)
