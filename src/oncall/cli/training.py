"""The option --training: a job's configuration, typed, or in a file of whichever form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oncall.core.errors import BadInput, UsageError
from oncall.core.training import (
    SettingError,
    Training,
    from_arguments,
    from_mapping,
    parse_settings,
)

ToldTraining = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS|FILE",
        help="The job's configuration: tp=2,pp=4,micro_batches=8, or a file: YAML, Megatron-LM's "
        "arguments, or the script that launches it.",
    ),
]
_MOST_BYTES = 4 * 1024**2


def read_training(text: str | None) -> Training | None:
    """What --training says. Raises UsageError for settings, BadInput for files that tell none."""
    if text is None:
        return None
    path = Path(text)
    try:
        is_file = path.is_file()
    except OSError:  # longer than any name
        is_file = False
    if is_file:
        return _read(path)
    try:
        if text.lstrip().startswith("--"):
            told = from_arguments(text, "command line")
            if told is not None:
                return told
        if "=" in text:
            return parse_settings(text)
    except SettingError as error:
        raise UsageError(f"--training {text}: {error}") from None
    raise UsageError(
        f"--training {text}: no such file, and no settings such as tp=2,pp=4,micro_batches=8"
    )


def _read(path: Path) -> Training:
    try:
        content = path.read_bytes()[:_MOST_BYTES].decode()
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(str(path), "is neither YAML nor arguments: it is no text") from None
    mapping = _mapping(content)
    try:
        told = (
            from_mapping(mapping, path.name)
            if mapping is not None
            else from_arguments(content, path.name)
        )
    except SettingError as error:
        raise BadInput(str(path), str(error)) from None
    if told is None:
        raise BadInput(
            str(path),
            "tells no configuration: neither YAML such as `tp: 2`, nor arguments such as "
            "--tensor-model-parallel-size 2",
        )
    return told


def _mapping(content: str) -> dict[str, object] | None:
    """The YAML mapping that the text is; None if it is none."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        loaded = YAML(typ="safe").load(content)
    except YAMLError:
        return None
    return loaded if isinstance(loaded, dict) else None
