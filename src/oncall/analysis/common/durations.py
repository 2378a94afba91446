"""Durations in sentences that relations write."""

from __future__ import annotations


def spoken(ns: str) -> str:
    """SQL of a duration, an expression in ns, as people say it: `10 min 4 s`, `2.1 s`, `35 ms`."""
    return f"""
        CASE WHEN {ns} >= 60 * 1e9 THEN concat_ws(' ', ({ns} / 1e9)::BIGINT // 60 || ' min',
                nullif(({ns} / 1e9)::BIGINT % 60, 0) || ' s')
            WHEN {ns} >= 1e9 THEN round({ns} / 1e9, 1) || ' s'
            WHEN {ns} >= 1e6 THEN round({ns} / 1e6)::BIGINT || ' ms'
            ELSE 'less than 1 ms' END
    """
