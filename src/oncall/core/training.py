"""A training job's configuration, as people and launchers write it, in the words of table `jobs`.

Three ways to write it: neutral settings ("tp=2,pp=4,micro_batches=8"), YAML with those keys or the
keys of straggler studies (`tp_size`), and the arguments of Megatron-LM or DeepSpeed, alone or
within a launch script. What else a script says is passed over; environments are never read.
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
    """A setting that cannot be; the message says which, and what it might have meant."""


@dataclass(frozen=True)
class Training:
    """Settings by the columns of `jobs`, and the parts that some are made of; and who told them."""

    settings: Mapping[str, int | bool | str]
    origin: str

    def complete(self, world_size: int | None) -> dict[str, int | bool | str]:
        """The columns of `jobs` that follow, where the job has so many ranks."""
        told = dict(self.settings)
        size = int(told.get("world_size") or world_size or 0)
        sizes = [int(told[name]) for name in ("tp", "pp", "cp") if name in told]
        if "dp" not in told and sizes and size and size % prod(sizes) == 0:
            told["dp"] = size // prod(sizes)
        batch, micro = told.pop("global_batch_size", None), told.pop("micro_batch_size", None)
        if "micro_batches" not in told and batch and micro and told.get("dp"):
            each = int(micro) * int(told["dp"])
            if int(batch) % each == 0:
                told["micro_batches"] = int(batch) // each
        layers_a_chunk = told.pop("layers_a_chunk", None)
        if "chunks" not in told and layers_a_chunk and told.get("layers"):
            chunks, rest = divmod(int(told["layers"]), int(told.get("pp", 1)) * int(layers_a_chunk))
            if not rest and chunks:
                told["chunks"] = chunks
        if "schedule" not in told and int(told.get("chunks", 1)) > 1:
            told["schedule"] = "interleaved"
        return told


def parse_settings(text: str) -> Training:
    """ "tp=2,pp=4" as settings. Raises SettingError."""
    pairs = {}
    for word in text.replace(",", " ").split():
        name, equals, value = word.partition("=")
        if not equals:
            raise SettingError(f"`{word}` is no setting: write NAME=VALUE, such as tp=2")
        pairs[name] = value
    return Training(_checked(pairs), "command line")


def from_mapping(mapping: Mapping[str, Any], origin: str) -> Training:
    """Settings of a YAML file: its neutral keys, or those of others. Raises SettingError."""
    return Training(_checked(mapping), origin)


def from_arguments(text: str | Sequence[str], origin: str) -> Training | None:
    """The settings among the arguments of a launch, as words or as shell text; None of none.

    Shell variables cannot be followed: a size that is one is not known.
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
    """The words of a script; what is no shell is cut at blanks."""
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
        raise SettingError(f"`{key}` is true or false, not `{text}`")
    if key == "schedule":
        known = {one.lower(): one for one in SCHEDULES}
        if text.lower() in known:
            return known[text.lower()]
        raise SettingError(f"`schedule: {text}` is none of {', '.join(SCHEDULES)}")
    if key == "framework":
        return text
    if not _is_size(text):
        raise SettingError(f"`{key}` is a number above zero, not `{text}`")
    return int(text)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.lower(), [*KEYS, *_ALSO, *_PARTS], n=1)
    hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(KEYS)}"
    return f"there is no setting `{name}` ({hint})"
