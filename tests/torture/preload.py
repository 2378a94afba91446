"""Libraries of this folder that change what the C library tells a program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .outcome import Skipped


def preloaded(source: str, folder: Path) -> dict[str, str]:
    """The environment that preloads a C file of this folder, compiled into `folder`. Raises
    Skipped where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise Skipped("no C compiler")
    library = folder / f"{Path(source).stem}.so"
    subprocess.run(
        [
            *(compiler, "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"),
            *(str(Path(__file__).with_name(source)), "-o", str(library), "-ldl"),
        ],
        check=True,
    )
    return {"LD_PRELOAD": str(library)}
