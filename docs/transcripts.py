"""Runs the transcripts in the documentation, so that what they show is what the program prints.

    python docs/transcripts.py            # writes today's output into every document
    python docs/transcripts.py --check    # prints what differs, and exits 1

A transcript is a fenced block with the info string `console`: lines `$ oncall ...`, each followed
by its output. `console head=12` shows the first 12 lines of each output. A fenced block with
`file=NAME` in its info string becomes that file. All blocks of one document run in order in one
scratch folder, in which `fixtures`, `docs` and `rulebooks` are linked.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
DOCUMENTS = (TOP / "README.md", TOP / "CONTRIBUTING.md", *sorted((TOP / "docs").glob("**/*.md")))
COLUMNS = 80
_BLOCK = re.compile(r"^```(?P<info>\w+[^\n]*)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"\bfile=(\S+)")
_HEAD = re.compile(r"\bhead=(\d+)")
_PROMPT = "$ "


def has_transcripts(document: Path) -> bool:
    """Whether something in it is to be run."""
    return document.exists() and any(
        block["info"].split()[0] == "console" for block in _BLOCK.finditer(document.read_text())
    )


def transcribed(document: Path) -> str:
    """The document with the output that its commands print now."""
    with tempfile.TemporaryDirectory(prefix="oncall-docs-") as name:
        folder = Path(name)
        for shared in ("fixtures", "docs", "rulebooks"):
            (folder / shared).symlink_to(TOP / shared)

        def run(block: re.Match[str]) -> str:
            info, body = block["info"], block["body"]
            if file := _FILE.search(info):
                path = folder / file[1]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(body)
            if info.split()[0] != "console":
                return block[0]
            head = _HEAD.search(info)
            outputs = [
                _with_output(line, folder, int(head[1]) if head else None)
                for line in body.splitlines()
                if line.startswith(_PROMPT)
            ]
            return f"```{info}\n{chr(10).join(outputs)}```"

        return _BLOCK.sub(run, document.read_text())


def _with_output(prompt: str, folder: Path, head: int | None) -> str:
    """The command as typed and what it prints, as a terminal of 80 columns shows both streams."""
    words = shlex.split(prompt.removeprefix(_PROMPT), comments=True)
    if words[0] == "oncall":
        words[:1] = [sys.executable, "-m", "oncall.cli.main"]
    answer = subprocess.run(
        words,
        cwd=folder,
        env=os.environ | {"COLUMNS": str(COLUMNS), "TZ": "UTC", "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    lines = answer.stdout.rstrip().splitlines()
    if head is not None and len(lines) > head:
        lines = [*lines[:head], "..."]
    return "".join(f"{line.rstrip()}\n" for line in (prompt, *lines))


def main() -> int:
    """Write or check every document; the exit code."""
    check = "--check" in sys.argv[1:]
    differs = False
    for document in filter(has_transcripts, DOCUMENTS):
        before, after = document.read_text(), transcribed(document)
        if before == after:
            continue
        differs = True
        name = str(document.relative_to(TOP))
        if check:
            old, new = before.splitlines(True), after.splitlines(True)
            sys.stdout.writelines(difflib.unified_diff(old, new, name, f"{name} as it runs now"))
        else:
            document.write_text(after)
            print(f"{name}: written")
    return int(check and differs)


if __name__ == "__main__":
    raise SystemExit(main())
