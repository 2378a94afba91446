"""The configuration files: /etc/oncall/config.toml, overridden by the user's own.

Each part of oncall reads its own table: [fleet], [rules], [console], [keys]. Keys of a later file
override those of an earlier one.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from oncall.core.errors import BadInput, UsageError

_SITE = Path("/etc/oncall/config.toml")


@dataclass(frozen=True)
class ConfigurationTable:
    """One table of one file."""

    path: Path
    values: Mapping[str, Any]


def configuration_folder() -> Path:
    """$XDG_CONFIG_HOME/oncall, in ~/.config if that is not set."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "oncall"


def configuration_files() -> tuple[Path, ...]:
    """The configuration files, in order of increasing precedence."""
    return (_SITE, configuration_folder() / "config.toml")


def parse_toml(text: str, place: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises BadInput, also for numbers of thousands of digits and deep
    nesting, for which Python's reader raises other errors."""
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise BadInput(str(place), f"not TOML: {error}") from error
    except RecursionError:
        raise BadInput(str(place), "not TOML: nested too deeply") from None


def read_tables(
    name: str, files: Sequence[Path] | None = None
) -> tuple[list[ConfigurationTable], list[BadInput]]:
    """That table of each file that has it, and the errors of files that cannot be read.

    Files that do not exist are skipped.
    """
    tables: list[ConfigurationTable] = []
    problems: list[BadInput] = []
    for path in configuration_files() if files is None else files:
        try:
            content = parse_toml(path.read_bytes().decode(), path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except BadInput as problem:
            problems.append(problem)
            continue
        except UnicodeDecodeError:
            problems.append(BadInput(str(path), "not a text file in UTF-8"))
            continue
        except OSError as error:
            problems.append(BadInput(str(path), f"cannot be read: {error.strerror}"))
            continue
        values = content.get(name, {})
        if isinstance(values, dict):
            tables.append(ConfigurationTable(path, values))
        else:
            problems.append(BadInput(str(path), f"[{name}] must be a table"))
    return tables, problems


def read_settings(
    name: str,
    readers: Mapping[str, Callable[[Any], Any]],
    files: Sequence[Path] | None = None,
) -> dict[str, Any]:
    """What is set in [name], each value as the reader of its key returns it.

    Raises BadInput, naming file and key, for a file that cannot be read, an unknown key, and a
    value for which the reader raises UsageError: it says what is wrong with it.
    """
    tables, problems = read_tables(name, files)
    for problem in problems:
        raise problem
    settings: dict[str, Any] = {}
    for table in tables:
        for key, value in table.values.items():
            if key not in readers:
                unknown = f"unknown option `{key}` in [{name}]{meant(key, readers)}"
                raise BadInput(str(table.path), unknown)
            try:
                settings[key] = readers[key](value)
            except UsageError as error:
                raise BadInput(str(table.path), f"`{key}` in [{name}] {error}") from None
    return settings


def meant(key: str, known: Iterable[str]) -> str:
    """What to write instead of an unknown key, to go on with: the nearest, else all there are."""
    names = sorted(known)
    near = get_close_matches(key, names, n=1)
    return f" (did you mean {near[0]}?)" if near else f"; known: {', '.join(names)}"


def text_of(value: Any) -> str:
    """The value, if it is a text. Raises UsageError."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise UsageError(f'must be a string such as "10s", not {value!r}')
    return value
