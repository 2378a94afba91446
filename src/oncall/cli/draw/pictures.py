"""Pictures that commands write: checking the target, and converting .svg to .png."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oncall.cli.terminal import terminal_width
from oncall.core.errors import UsageError

if TYPE_CHECKING:
    from oncall.render.text.lines import Line

SVG, PNG = ".svg", ".png"
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a picture (.svg or .png). Default: print text.",
    ),
]


@dataclass(frozen=True)
class Drawing:
    """A drawing, rendered on demand as text, `lines(width=)`, or as an SVG."""

    lines: Callable[..., list[Line]]
    svg: Callable[[], str]


def drawable() -> AbstractContextManager[None]:
    """Turn failures on malformed evidence into an error message."""
    from oncall.evidence.readable import readable

    return readable("this evidence cannot be drawn")


def show(drawing: Drawing, output: Path | None) -> None:
    """Write the picture and print its path, or print the drawing as text without `output`."""
    if output is not None:
        with drawable():
            svg = drawing.svg()
        write_picture(output, svg)
        sys.stdout.write(f"{output}\n")
        return
    with drawable():
        lines = drawing.lines(width=terminal_width(most=160))
    sys.stdout.write("\n".join(map(str, lines)) + "\n")


def check_target(output: Path | None, suffixes: Sequence[str] = (SVG, PNG)) -> None:
    """Raise UsageError for a path that cannot be written, before anything is read."""
    if output is None:
        return
    if not output.name.endswith(tuple(suffixes)):
        raise UsageError(f"--output {output}: the file name must end in {' or '.join(suffixes)}")
    if not output.parent.is_dir():
        raise UsageError(f"--output {output}: no such folder: {output.parent}")
    if output.suffix == PNG and shutil.which("rsvg-convert") is None:
        raise UsageError(
            f"--output {output}: a .png needs rsvg-convert (package librsvg2-bin), which is not "
            "installed; write an .svg instead"
        )


def write_picture(output: Path, svg: str) -> None:
    """Write an .svg, or a .png at twice the size. Raises UsageError if rsvg-convert fails."""
    if output.suffix == SVG:
        output.write_text(svg, encoding="utf-8")
        return
    command = ["rsvg-convert", "--zoom", "2", "--output", str(output)]
    done = subprocess.run(command, input=svg.encode(), capture_output=True, check=False)
    if done.returncode:
        raise UsageError(f"rsvg-convert: {done.stderr.decode(errors='replace').strip()}")


def hash_of(comm: str | None) -> int | None:
    """The communicator that `--comm` names."""
    try:
        return None if comm is None else int(comm, 16)
    except ValueError:
        raise UsageError(f"--comm {comm}: expected a communicator hash, such as 0x1f2e") from None
