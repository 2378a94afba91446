"""A training job's configuration, parsed into the columns of table `jobs`.

Three forms: settings ("tp=2,pp=4,micro_batches=8"), YAML with those keys or the keys of straggler
studies (`tp_size`), and the arguments of Megatron-LM or DeepSpeed, alone or within a launch script.
Other content of a script is ignored; the environment is never read.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

NUMBERS = ("world_size", "tp", "pp", "dp", "ep", "cp", "micro_batches", "chunks", "layers")
_CUTS = ("tp", "pp", "cp", "dp")  # what the ranks are divided by
FLAGS = ("sequence_parallel", "distributed_optimizer")
SCHEDULES = ("1F1B", "interleaved", "GPipe")
# Known only to make others of: micro-batches of the batch, chunks of the layers.
_PARTS = ("global_batch_size", "micro_batch_size", "layers_a_chunk")
KEYS = (*NUMBERS, *FLAGS, "schedule", "framework")
_ALSO = {
    "tp_size": "tp",
    "pp_size": "pp",
    "dp_size": "dp",
    "ep_size": "ep",
    "cp_size": "cp",
    "vpp_size": "chunks",
    "vpp": "chunks",
    "num_layers": "layers",
    "num_micro_batches": "micro_batches",
    "num_microbatches": "micro_batches",
    "gradient_accumulation_steps": "micro_batches",
    "use_distributed_optimizer": "distributed_optimizer",
    "tensor_model_parallel_size": "tp",
    "pipeline_model_parallel_size": "pp",
    "data_parallel_size": "dp",
    "expert_model_parallel_size": "ep",
    "context_parallel_size": "cp",
    "num_virtual_stages_per_pipeline_rank": "chunks",
    "num_layers_per_virtual_pipeline_stage": "layers_a_chunk",
}
_IGNORED = ("trial_name", "run_id", "dsp_size")  # of a straggler study's meta files
_MOST = 10**9
_WORD = re.compile(r"--([a-z][a-z0-9_-]*)")


class SettingError(ValueError):
    """An invalid setting; the message names it and suggests a correction."""


@dataclass(frozen=True)
class Training:
    """Settings by the columns of `jobs`, the parts that some derive from, and their source."""

    settings: Mapping[str, int | bool | str]
    origin: str

    def complete(self, world_size: int | None) -> dict[str, int | bool | str]:
        """The columns of `jobs` that follow, for a job of `world_size` ranks."""
        settings = dict(self.settings)
        size = int(settings.get("world_size") or world_size or 0)
        sizes = [int(settings[name]) for name in ("tp", "pp", "cp") if name in settings]
        if "dp" not in settings and sizes and size and size % prod(sizes) == 0:
            settings["dp"] = size // prod(sizes)
        batch, micro = (
            settings.pop("global_batch_size", None),
            settings.pop("micro_batch_size", None),
        )
        if "micro_batches" not in settings and batch and micro and settings.get("dp"):
            each = int(micro) * int(settings["dp"])
            if int(batch) % each == 0:
                settings["micro_batches"] = int(batch) // each
        layers_a_chunk = settings.pop("layers_a_chunk", None)
        if "chunks" not in settings and layers_a_chunk and settings.get("layers"):
            chunks, rest = divmod(
                int(settings["layers"]), int(settings.get("pp", 1)) * int(layers_a_chunk)
            )
            if not rest and chunks:
                settings["chunks"] = chunks
        if "schedule" not in settings and int(settings.get("chunks", 1)) > 1:
            settings["schedule"] = "interleaved"
        return settings

    def contradiction(self, world_size: int | None) -> str | None:
        """Why a job of `world_size` ranks cannot be cut so; None if it can, or its size is unknown.

        Expert parallelism cuts the data-parallel ranks again, and counts no ranks of its own.
        """
        sizes = {name: self.settings[name] for name in _CUTS if name in self.settings}
        ranks = prod(map(int, sizes.values()))
        if not world_size or not sizes or world_size % ranks == 0:
            return None
        stated = ", ".join(f"{name}={size}" for name, size in sizes.items())
        product = (
            f"{' x '.join(map(str, sizes.values()))} = {ranks}" if len(sizes) > 1 else str(ranks)
        )
        return f"{stated} does not fit {world_size} ranks: {product} does not divide {world_size}"


def parse_settings(text: str) -> Training:
    """ "tp=2,pp=4" as settings. Raises SettingError."""
    pairs = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"`{word}`: expected NAME=VALUE, such as tp=2")
        pairs[name] = value
    return Training(_checked(pairs), "command line")


def from_mapping(mapping: Mapping[str, Any], origin: str) -> Training:
    """Settings of a YAML file: its neutral keys, or those of others. Raises SettingError."""
    return Training(_checked(mapping), origin)


def from_arguments(text: str | Sequence[str], origin: str) -> Training | None:
    """The settings among the arguments of a launch, as words or as shell text; None if there are
    none.

    Shell variables are not expanded: a size given by one stays unknown.
    """
    words = _words(text) if isinstance(text, str) else list(text)
    found: dict[str, Any] = {}
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        matched = _WORD.fullmatch(name)
        if matched is None:
            continue
        key = matched[1].replace("-", "_")
        key = _ALSO.get(key, key)
        if key in FLAGS:
            found[key] = not equals or value.lower() not in ("false", "0")
            continue
        if not equals:
            value = words[number + 1] if number + 1 < len(words) else ""
        if key in (*NUMBERS, *_PARTS) and _is_size(value):
            found[key] = int(value)
    if found and any(word.lstrip("-").startswith("deepspeed") for word in words):
        found["framework"] = "DeepSpeed"
    elif any(word.startswith("--tensor-model-parallel") for word in words):
        found["framework"] = "Megatron-LM"
    return Training(found, origin) if found else None


def _words(text: str) -> list[str]:
    """The words of a script; lines that are not valid shell are split at blanks."""
    joined = text.replace("\\\n", " ")
    lines = []
    for line in joined.splitlines():
        try:
            lines += shlex.split(line, comments=True)
        except ValueError:  # a quoted text that goes on in other lines
            lines += re.sub(r"[\"'`()]", " ", line).split()
    # Arguments are often kept in a variable, as one quoted word.
    return [word for line in lines for word in line.split()]


def _is_size(value: str) -> bool:
    return value.isascii() and value.isdigit() and 0 < int(value[:12]) <= _MOST


def _checked(pairs: Mapping[str, Any]) -> dict[str, int | bool | str]:
    settings: dict[str, int | bool | str] = {}
    for name, value in pairs.items():
        key = str(name).strip().removeprefix("--").replace("-", "_").lower()
        key = _ALSO.get(key, key)
        if key in _IGNORED or value is None:
            continue
        if key not in (*KEYS, *_PARTS):
            raise SettingError(_unknown(str(name)))
        settings[key] = _value(key, value)
    return settings


def _value(key: str, value: Any) -> int | bool | str:
    text = str(value).strip()
    if key in FLAGS:
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise SettingError(f"`{key}` must be true or false, not `{text}`")
    if key == "schedule":
        known = {one.lower(): one for one in SCHEDULES}
        if text.lower() in known:
            return known[text.lower()]
        raise SettingError(f"`schedule` must be one of {', '.join(SCHEDULES)}, not `{text}`")
    if key == "framework":
        return text
    if not _is_size(text):
        raise SettingError(f"`{key}` must be a positive integer, not `{text}`")
    return int(text)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), [*KEYS, *_ALSO, *_PARTS], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KEYS)}"
    return f"unknown setting `{name}` ({hint})"
