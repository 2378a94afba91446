"""The relations that oncall ships."""

from __future__ import annotations

from oncall.evidence.registry import all_relations

SHIPPED = tuple(all_relations().values())
