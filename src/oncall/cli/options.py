"""The options that several commands have: whose evidence (a job, the nodes to query), how the job
is configured, which rulebooks judge it; and what a command writes, a report in its format and
colours or a file of the evidence."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.terminal import complain, terminal_width
from oncall.core.errors import BadInput, UsageError
from oncall.core.symptom import Symptom
from oncall.core.training import (
    SettingError,
    Training,
    from_arguments,
    from_mapping,
    parse_settings,
)

if TYPE_CHECKING:
    from oncall.core.diagnosis import Diagnosis
    from oncall.rules.site import Rulebooks

JobOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Job to use, if there are several.")
]
InventoryOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="File that lists the nodes to query.")
]
HostsOption = Annotated[
    str | None,
    typer.Option(
        metavar="NODESET",
        help="Nodes to query, such as gpu[001-512] or local:DIR/*, or those of a job: slurm:1234, "
        "srun:1234, kube:pytorchjob/NAME[@NAMESPACE], kube:LABEL=VALUE, ray:ID.",
    ),
]
SlurmJobOption = Annotated[
    str | None,
    typer.Option(metavar="ID", help="The same as --hosts slurm:ID."),
]


def with_slurm_job(hosts: str | None, slurm_job: str | None) -> str | None:
    """The value of `--hosts`, also where `--slurm-job` names the nodes."""
    if slurm_job is None:
        return hosts
    if hosts is not None:
        raise UsageError("give either --hosts or --slurm-job, not both")
    return f"slurm:{slurm_job}"


_MOST_SHOWN = 2  # problems of a file; `oncall rules check` lists all

RulesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--rules",
        metavar="DIR",
        help="Rulebooks that override others, the last most. Repeatable.",
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="RULE.NAME=VALUE",
        help="Override a parameter: hang.hang_after=30s. Repeatable.",
    ),
]
SiteRulesOption = Annotated[
    bool,
    typer.Option(
        "--site-rules/--no-site-rules",
        help="Use the site's rulebooks: `folder` under [rules] of the configuration.",
    ),
]
SymptomOption = Annotated[
    Symptom,
    typer.Option(
        help="What you observed. It decides whether waiting ranks are a hang, where nothing in the "
        "evidence contradicts it. Where no fault is found, the answer is then inconclusive, and "
        "names the best suspect or what was compared.",
    ),
]


def rulebooks_in_force(
    more: Sequence[Path] | None, with_site: bool, overrides: Mapping[str, str] | None = None
) -> Rulebooks:
    """The shipped rulebooks, the site's and those of the folders `more`.

    Site rulebooks with errors are reported on stderr and skipped. Raises RulebookError or
    UsageError for errors in `more` and `overrides`.
    """
    from oncall.rules.site import read_rulebooks

    rulebooks = read_rulebooks(checked_site_folder() if with_site else None, more or (), overrides)
    for one in rulebooks.set_aside:
        instead = f"; the shipped {one.name} runs instead" if one.instead else ""
        warn(f"site rulebook {one.path} skipped{instead} (see `oncall rules check`):")
        warn("\n".join(map(str, one.problems[:_MOST_SHOWN])), prefix="")
    return rulebooks


def parse_overrides(params: Sequence[str]) -> dict[str, str]:
    """`hang.hang_after=30s` as {"hang.hang_after": "30s"}."""
    pairs = {}
    for text in params:
        name, equals, value = text.partition("=")
        if not equals or "." not in name or not value.strip():
            raise UsageError(
                f"--param {text}: expected RULE.NAME=VALUE, such as hang.hang_after=30s"
            )
        pairs[name.strip()] = value.strip()
    return pairs


def checked_site_folder() -> Path:
    """The folder of the site's rulebooks. Errors of the configuration are only reported."""
    from oncall.rules.site_folder import site_folder

    folder, problems = site_folder()
    for problem in problems:
        warn(f"{problem}; using the site rulebooks in {folder}")
    return folder


def warn(text: str, prefix: str = "oncall: ") -> None:
    """Print a warning on stderr."""
    from oncall.core.printable import clean_lines

    complain((prefix + "\n".join(clean_lines(text))).split("\n"))


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


class Format(StrEnum):
    """The output format."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"
    VENDOR = "vendor"


class TextOrJson(StrEnum):
    """The output format of what is no report."""

    TEXT = "text"
    JSON = "json"


FormatOption = Annotated[TextOrJson, typer.Option(help="Output format.")]


class Colour(StrEnum):
    """When to colour the text."""

    AUTO = "auto"
    NEVER = "never"
    ALWAYS = "always"


@dataclass(frozen=True)
class Shown:
    """How a report is shown; `explain`: with each step's fact, SQL and parameters."""

    format: Format = Format.TEXT
    explain: bool = False
    color: Colour = Colour.AUTO


def written(
    diagnosis: Diagnosis,
    shown: Shown,
    drawings: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The report as text (as wide as the terminal), Markdown, a page for browsers, or JSON."""
    explain = shown.explain
    match shown.format:
        case Format.JSON:
            from oncall.render.contract import to_json

            return to_json(diagnosis, explain=explain)
        case Format.MARKDOWN:
            from oncall.render.markdown import to_markdown

            return to_markdown(diagnosis, explain=explain, drawings=drawings)
        case Format.HTML:
            from oncall.render.html import to_html

            return to_html(diagnosis, drawings=drawings)
        case _:  # a ticket for a vendor needs the evidence, too: `oncall diagnose` writes it
            from oncall.render.text.report import to_text

            terminal = sys.stdout.isatty()
            plain = "NO_COLOR" in os.environ or os.environ.get("TERM", "dumb") == "dumb"
            colour = shown.color == Colour.ALWAYS or (
                shown.color == Colour.AUTO and terminal and not plain
            )
            return to_text(
                diagnosis, explain=explain, width=terminal_width(), colour=colour, drawings=drawings
            )


def check_targets(save: Path | None, into: Path | None) -> None:
    """Raise UsageError for both, or for one that cannot be written, before anything is read."""
    if save is not None and into is not None:
        raise UsageError("--save creates an incident, --into adds to one; give only one of them")
    for option, target in (("--save", save), ("--into", into)):
        if target is not None:
            check_target(option, target)


def check_target(option: str, save: Path) -> None:
    """Raise UsageError for an incident file that cannot be written, before anything is read."""
    from oncall.use_case.recordings import is_incident

    if save.suffix != ".oncall":
        raise UsageError(f"{option} {save}: the file name must end in .oncall")
    if not save.parent.is_dir():
        raise UsageError(f"{option} {save}: no such folder: {save.parent}")
    if not os.access(save.parent, os.W_OK):
        raise UsageError(f"{option} {save}: no permission to write in {save.parent}")
    if save.is_dir():
        raise UsageError(f"{option} {save}: is a folder; give a file in it")
    if save.exists() and not is_incident(save):
        raise UsageError(f"{option} {save}: exists and is not an incident file; not overwritten")
