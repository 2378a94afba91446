"""The collector's configuration: a TOML file in which every option has a default and unknown ones
are refused.

The options of each source are a table of their own: `seal_every = "30 s"`, `sources = ["rings",
"gpus"]`, then `[gpus]` with `every = "1 s"`.
"""

from __future__ import annotations

import json
import os
import re
import socket
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, replace
from pathlib import Path
from typing import Any

from oncall.core.configuration import parse_toml
from oncall.core.errors import BadInput, UsageError
from oncall.core.units import NS_PER_S, format_bytes, format_duration
from oncall.node.common.declaration import (
    SourceOptions,
    Surroundings,
    declared,
    default_options,
    on_by_default,
)
from oncall.node.common.options import Option, hint, key_of, option, options_of, read_value
from oncall.node.store.catalog import is_node_name
from oncall.node.store.places import data_dir, rings_dir, run_dir


def _node() -> str:
    """This node's name, as the hooks determine it: `$ONCALL_NODE`, else the host name."""
    return os.environ.get("ONCALL_NODE") or socket.gethostname().partition(".")[0]


def _known_sources(names: tuple[str, ...]) -> tuple[str, ...]:
    known = {name: f"`{name}`" for name in declared()}
    for name in names:
        if name not in known:
            raise ValueError(f"unknown source `{name}`{hint(name, known, known)}")
    return names


@dataclass(frozen=True)
class Configuration:
    """Everything that can be configured."""

    node: str = option(
        "name",
        "this node's name, as SSH knows it; "
        "default: $ONCALL_NODE, else the host name up to its first dot",
        default_factory=_node,
        restart=True,
    )
    data_dir: Path = option(
        "path",
        "the live store and the sealed shards; default: $ONCALL_DATA_DIR, else "
        "/var/lib/oncall, or without root $XDG_STATE_HOME/oncall",
        default_factory=data_dir,
        restart=True,
    )
    run_dir: Path = option(
        "path",
        "the rings and the collector's socket; default: $ONCALL_RUN_DIR, else "
        "/run/oncall, or without root $XDG_RUNTIME_DIR/oncall",
        default_factory=run_dir,
        restart=True,
    )
    sources: tuple[str, ...] = option(
        "names",
        'what is collected, such as ["rings", "gpus"]; default: every source that has a table '
        "below, unless it is off by default",
        default_factory=on_by_default,
        check=_known_sources,
        restart=True,
    )
    root: Path = option(
        "path",
        "the folder with the node's proc, sys and dev, for a collector in a container",
        default=Path("/"),
        restart=True,
    )
    drain_every_ns: int = option(
        "duration",
        "how often sources are read; rings that fill up are emptied then, the others at "
        "the next commit",
        default=NS_PER_S // 2,
    )
    commit_every_ns: int = option(
        "duration",
        "how often rows are committed, so how much a kill -9 can lose; readings of the "
        "host, GPUs and NICs, repeated every second, are committed every 5 s",
        default=5 * NS_PER_S,
    )
    seal_every_ns: int = option("duration", "how often a shard is sealed", default=60 * NS_PER_S)
    seal_operations: int = option(
        "number",
        "a shard with this many operations is sealed sooner: sealing takes memory for "
        "each operation",
        default=100_000,
    )
    keep_ns: int = option(
        "duration",
        "sealed shards older than this are deleted; time that the node was off does not count",
        default=48 * 3600 * NS_PER_S,
    )
    keep_bytes: int = option(
        "bytes", "beyond this the oldest shards are deleted, never the newest", default=16 * 2**30
    )
    keep_free_bytes: int = option(
        "bytes",
        "free disk space kept for others: below it nothing is written",
        default=2**30,
        restart=True,
    )
    backlog_bytes: int = option(
        "bytes",
        "the newest rows, held in memory while nothing can be written",
        default=32 * 2**20,
        restart=True,
    )
    store_memory_bytes: int = option("bytes", "memory that DuckDB may use", default=48 * 2**20)
    ring_grace_ns: int = option(
        "duration",
        "how long the ring of an ended process is kept",
        default=300 * NS_PER_S,
        restart=True,
    )
    socket_group: bool = option(
        "truth",
        "whether the socket's group may query too: mode 0660 instead of 0600",
        default=False,
        restart=True,
    )
    source_options: SourceOptions = field(default_factory=default_options)

    def surroundings(self) -> Surroundings:
        """What the sources of one collector are made in."""
        return Surroundings(
            self.node, self.root, rings_dir(self.run_dir), self.ring_grace_ns, self.source_options
        )

    def with_source(self, source: str, **values: object) -> Configuration:
        """With other values of fields of one source's options."""
        return replace(self, source_options=self.source_options.changed(source, **values))


def load(path: Path | None, overrides: Mapping[str, Any] | None = None) -> Configuration:
    """The configuration in a file, if any, overridden by the command line.

    Raises BadInput with file, line and option for what is wrong in the file, UsageError for what
    is wrong in `overrides`.
    """
    configuration = _read(path) if path else Configuration()
    configuration = replace(
        configuration,
        **{key: value for key, value in (overrides or {}).items() if value is not None},
    )
    if not is_node_name(configuration.node):
        raise UsageError(f"`{configuration.node}` is not a host name; set one with --node")
    return configuration


def reload(running: Configuration, wanted: Configuration) -> tuple[Configuration, list[str]]:
    """The configuration that a running collector applies now, and the options that change only at a
    restart: those that say so, and those of sources."""
    held = {
        each.name: getattr(running, each.name)
        for key, each in options_of(Configuration).items()
        if each.metadata["option"].restart
    }
    waiting = [key_of(name) for name, value in held.items() if getattr(wanted, name) != value]
    for name, options in running.source_options.by_source.items():
        others = wanted.source_options.by_source[name]
        waiting += [
            f"[{name}] {key}"
            for key, each in options_of(options).items()
            if getattr(others, each.name) != getattr(options, each.name)
        ]
    return replace(wanted, **held, source_options=running.source_options), waiting


# ------------------------------------------------------------------------- the file


def _read(path: Path) -> Configuration:
    try:
        text = path.read_text(encoding="utf-8")
        content = parse_toml(text, path)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(str(path), "not a text file in UTF-8") from error
    file = _File(path, text)
    own = {key: value for key, value in content.items() if key not in declared()}
    values = file.values(own, options_of(Configuration), _meant())
    configuration = Configuration(**values)
    for name, each in declared().items():
        if name in content:
            table = file.table(name, content[name], options_of(each.options))
            configuration = configuration.with_source(name, **table)
    return configuration


def _meant() -> dict[str, str]:
    """What an unknown key above all tables probably means: `gpus_every` is `every` in [gpus]."""
    own = {key: f"`{key}`" for key in options_of(Configuration)}
    tables = {name: f"[{name}]" for name in declared()}
    inside = {
        f"{name}_{key}": f"`{key}` in [{name}]"
        for name, each in declared().items()
        for key in options_of(each.options)
    }
    return inside | tables | own


@dataclass(frozen=True)
class _File:
    """A file being read, to name lines of it."""

    path: Path
    text: str

    def table(self, name: str, value: Any, known: Mapping[str, Field[Any]]) -> dict[str, Any]:
        """The fields that table [name] sets. Raises BadInput."""
        if not isinstance(value, dict):
            raise BadInput(self._place(name), f"`{name}` is a table: write its options in [{name}]")
        if not known and value:
            raise BadInput(self._place(name), f"[{name}] has no options")
        meant = {key: f"`{key}`, above all tables" for key in options_of(Configuration)}
        meant |= {f"{name}_{key}": f"`{key}`" for key in known} | {key: f"`{key}`" for key in known}
        return self.values(value, known, meant, name)

    def values(
        self,
        table: Mapping[str, Any],
        known: Mapping[str, Field[Any]],
        meant: Mapping[str, str],
        name: str = "",
    ) -> dict[str, Any]:
        """The fields that a table sets. Raises BadInput."""
        where = f" in [{name}]" if name else ""
        listed = known if name else (*known, *(f"[{each}]" for each in declared()))
        values = {}
        for key, value in table.items():
            if key not in known:
                problem = f"unknown option `{key}`{where}{hint(key, meant, listed)}"
                raise BadInput(self._place(key, name), problem)
            try:
                values[known[key].name] = read_value(known[key], value)
            except (UsageError, ValueError) as error:
                raise BadInput(self._place(key, name), f"`{key}`{where}: {error}") from error
        return values

    def _place(self, key: str, table: str = "") -> str:
        """The 1-based line that sets `key`, else that of its table, else 1."""
        lines = self.text.splitlines()
        start = _line_of(lines, table, 1) if table else 1
        return f"{self.path}:{_line_of(lines, key, start, table)}"


def _line_of(lines: list[str], key: str, start: int, table: str = "") -> int:
    dotted = rf"""(["']?{re.escape(table)}["']?\s*\.\s*)?""" if table else ""
    spelt = re.compile(rf"""\s*(\[+\s*)?{dotted}["']?{re.escape(key)}["']?\s*[=.\]]""")
    numbered = enumerate(lines[start - 1 :], start)
    return next((number for number, line in numbered if spelt.match(line)), start)


# ------------------------------------------------------------------- every option, as a page

_WIDTH = 90


def every_option() -> str:
    """A collector's file (TOML) in which every option stands with its default. What the machine
    decides, such as the node's name, is a comment."""
    lines: list[str] = []
    for key, each in options_of(Configuration).items():
        lines += _lines(key, each, each.default)
    for name, source in declared().items():
        off = "" if source.on_by_default else " Off unless `sources` names it."
        lines += [*_comment(f"{source.collects}{off}"), f"[{name}]"]
        for key, each in options_of(source.options).items():
            lines += _lines(key, each, getattr(source.options, each.name))
        if lines[-1]:
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def to_markdown() -> str:
    """The page docs/reference/collector.md."""
    return (
        "# Options of a collector\n\n<!-- generated by `make docs` -->\n\n"
        "`oncall collect --options` prints this file: every option with its default. "
        "[collect.md](../guide/collect.md#configuration) shows how to use it.\n\n"
        f"```toml\n{every_option()}```\n"
    )


def _lines(key: str, declared_field: Field[Any], default: Any) -> Iterator[str]:
    declared: Option = declared_field.metadata["option"]
    yield from _comment(declared.meaning)
    yield f"# {key} = ..." if default is MISSING else f"{key} = {_toml(declared, default)}"
    yield ""


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ")


def _toml(declared: Option, value: Any) -> str:
    match declared.kind:
        case "duration":
            return f'"{format_duration(value)}"'
        case "bytes":
            return f'"{format_bytes(value)}"'
        case "truth":
            return str(value).lower()
        case "number" | "port":
            return str(value)
        case "names" | "nodes":
            return json.dumps(value)
    return json.dumps(str(value))
