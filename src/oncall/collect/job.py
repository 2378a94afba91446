"""A job's configuration as its launcher told it: "tp=2 pp=2 dp=2 micro_batches=8"."""

from __future__ import annotations

from oncall.shards.batch import Batch, one_row

_NUMBERS = ("tp", "pp", "dp", "ep", "cp", "micro_batches")
_WORDS = ("schedule", "framework")


def parse_configuration(text: str) -> dict[str, int | str]:
    """The settings that the evidence schema knows; others, and what is no number, are passed
    over: a job's own words must never stop the collector."""
    told: dict[str, int | str] = {}
    for word in text.replace(",", " ").split():
        name, _, value = word.partition("=")
        if name in _NUMBERS and value.isascii() and value.isdigit() and len(value) <= 9:
            told[name] = int(value)
        elif name in _WORDS and value:
            told[name] = value
    return told


def job_row(job: str, world_size: int | None, configuration: str, framework: str) -> Batch:
    """One row of `jobs`."""
    told = {"framework": framework or None} | parse_configuration(configuration)
    return one_row("jobs", job=job, world_size=world_size, **told)
