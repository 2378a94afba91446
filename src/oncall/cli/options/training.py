"""The option --training: a job's configuration, as settings or in a file."""

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

TrainingOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS|FILE",
        help="Configuration of the job: tp=2,pp=4,micro_batches=8, or a file with YAML, "
        "Megatron-LM arguments, or the launch script.",
    ),
]
_MOST_BYTES = 4 * 1024**2


def read_training(text: str | None) -> Training | None:
    """The value of --training. Raises UsageError for wrong settings, BadInput for a file without
    a configuration."""
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
            configured = from_arguments(text, "command line")
            if configured is not None:
                return configured
        if "=" in text:
            return parse_settings(text)
    except SettingError as error:
        raise UsageError(f"--training {text}: {error}") from None
    raise UsageError(
        f"--training {text}: expected a file or settings such as tp=2,pp=4,micro_batches=8"
    )


def _read(path: Path) -> Training:
    try:
        content = path.read_bytes()[:_MOST_BYTES].decode()
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadInput(str(path), "not a text file; expected YAML or arguments") from None
    mapping = _mapping(content)
    try:
        configured = (
            from_mapping(mapping, path.name)
            if mapping is not None
            else from_arguments(content, path.name)
        )
    except SettingError as error:
        raise BadInput(str(path), str(error)) from None
    if configured is None:
        raise BadInput(
            str(path),
            "no configuration found; expected YAML such as `tp: 2`, or arguments such as "
            "--tensor-model-parallel-size 2",
        )
    return configured


def _mapping(content: str) -> dict[str, object] | None:
    """The text parsed as a YAML mapping; None if it is not one."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        loaded = YAML(typ="safe").load(content)
    except YAMLError:
        return None
    return loaded if isinstance(loaded, dict) else None
