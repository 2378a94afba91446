"""A rulebook's file, written whole or not at all, and never over somebody else's change."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from oncall.core.errors import UsageError


class RulebookFiles:
    """Files that were read here, so that a change by somebody else since is noticed."""

    def __init__(self) -> None:
        self._read: dict[Path, str] = {}  # file -> digest of what the reader has seen

    def read(self, path: Path) -> str:
        """Its text. Raises UsageError where it cannot be read."""
        content = _content(path)
        try:
            text = content.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8 text; it cannot be edited here") from error
        self._read[path] = _digest(content)
        return text

    def refuse_what_changed(self, path: Path) -> None:
        """Raises UsageError where the file is not what was read last, or was never read."""
        if path.exists() and self._read.get(path) != _digest(_content(path)):
            raise UsageError(
                f"someone else changed {path} since you opened it, so it was not overwritten: copy "
                f"your text, open the rulebook again and merge the two"
            )

    def write(self, path: Path, text: str) -> None:
        """Raises UsageError where it cannot be written."""
        replace_file(path, text.encode())
        self._read[path] = _digest(text.encode())


def replace_file(path: Path, content: bytes | None) -> None:
    """The whole file or nothing: a temporary one beside it, then a rename. None: no file."""
    try:
        if content is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            part = Path(file.name)
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
                part.chmod(mode)
                part.replace(path)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def _content(path: Path) -> bytes:
    if path.exists() and not path.is_file():  # reading a pipe would wait for ever
        raise UsageError(f"cannot read {path}: not a file")
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
