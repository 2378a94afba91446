"""Whether a job moves, asked between two looks: a pulse a node, that rises with every call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from oncall.core.units import NS_PER_S

# A silence that is worth a look: beyond the longest from which the job came back, within these.
_LEAST_NS, _MOST_NS = 4 * NS_PER_S, 8 * NS_PER_S
_OVER_NS = 600 * NS_PER_S  # by then age has decided, or the job is done


@dataclass(frozen=True)
class Pulses:
    """The last pulse, when it was asked for, since when it is the same, and the longest silence
    that ended. Unix ns."""

    pulse: Mapping[str, int] = field(default_factory=dict)
    at_ns: int = 0
    since_ns: int = 0
    longest_ns: int = 0

    def then(self, pulse: Mapping[str, int], now_ns: int) -> Pulses:
        """After one more; who is missing says nothing, and who is new has moved."""
        pulse = {name: count for name, count in pulse.items() if count}
        if pulse and all(self.pulse.get(name) == count for name, count in pulse.items()):
            return replace(self, at_ns=now_ns)
        # Between two pulses that are far apart nothing is known.
        ended_ns = self.at_ns - self.since_ns if pulse else 0
        return Pulses(pulse, now_ns, now_ns, max(self.longest_ns, ended_ns))

    @property
    def are_silent(self) -> bool:
        """Whether nothing had moved for longer than is normal for the job."""
        silent_ns = self.at_ns - self.since_ns
        normal_ns = min(max(self.longest_ns, _LEAST_NS), _MOST_NS)
        return bool(self.pulse) and normal_ns <= silent_ns < _OVER_NS
