"""Text that others wrote, made fit to be shown, typed or used as a file's name.

Names of hosts and jobs, messages and paths come from recordings and nodes. Whatever they hold, they
must not steer a terminal, reorder or hide what is read, run in a shell or leave a folder. Evidence
itself is kept as it is: this is applied where something leaves oncall.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

LONGEST_NAME = 80  # characters of a name within a sentence or a cell
LONGEST_VALUE = 240  # characters of a value within a sentence: a message of a kernel fits
LONGEST_LINE = 2_000  # characters of a line; exports as JSON hold all of it
LONGEST_WORD = 255  # characters of a command's argument: host names and paths are no longer
_LONGEST_FILE_BYTES = 120  # leaves room for a suffix and a date within the 255 of file systems
_REPLACED = "\N{REPLACEMENT CHARACTER}"

# Unicode's controls, format characters, surrogates, separators of lines, tags and noncharacters of
# the first plane, and letters and marks that are drawn as nothing. Variation selectors after an
# emoji stay, as do combining marks.
_HARMFUL = (
    "\x00-\x09\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u070f\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufdd0-\ufdef\ufeff\uffa0"
    "\ufff0-\ufffb\ufffe\uffff\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_HARM = re.compile(f"[{_HARMFUL}]")
# What our own output has besides text: colours, the line feed, a tab, a line written anew.
_OURS_OR_HARM = re.compile(rf"(\x1b\[[0-9;]*m|\r?\x1b\[K|\t)|[{_HARMFUL}]")
_BREAK = re.compile(r"[\n\t]")
_DEVICES = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)", re.IGNORECASE)


def harmless(text: str) -> str:
    """`text` as long as before, with a replacement mark for what could steer or mislead; line feeds
    stay."""
    return text if _HARM.search(text) is None else _HARM.sub(_REPLACED, text)


def is_harmless(text: str) -> bool:
    """Whether nothing in `text` would be replaced."""
    return _HARM.search(text) is None


def harmless_values(document: Any) -> Any:
    """Plain data as JSON has it, each of its strings and names `harmless`."""
    if isinstance(document, str):
        return harmless(document)
    if isinstance(document, Mapping):
        return {harmless(str(key)): harmless_values(value) for key, value in document.items()}
    if isinstance(document, (list, tuple)):
        return [harmless_values(value) for value in document]
    return document


def shortened(text: str, most: int) -> str:
    """At most `most` characters, the last of them `…` if some are left out."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def clean(text: str, most: int = LONGEST_LINE) -> str:
    """`text` harmless on one line of at most `most` characters."""
    parts = (part.strip() for part in _BREAK.split(text))
    return harmless(shortened(" ".join(part for part in parts if part), most))


def short(name: str) -> str:
    """A name as it stands within a sentence, a cell or a picture: `clean`, and short."""
    return clean(name, LONGEST_NAME)


def named(wanted: str, names: Iterable[str]) -> str | None:
    """The one of `names` that is `wanted`, else the only one that is shown so: what cannot be typed
    is chosen by what stands for it."""
    known = list(names)
    shown = [name for name in known if wanted in (clean(name), short(name))]
    return wanted if wanted in known else shown[0] if len(shown) == 1 else None


def clean_lines(text: str) -> list[str]:
    """The lines of a block (SQL, a message), indentation kept, each harmless."""
    lines = text.expandtabs(4).strip("\n").split("\n")
    kept = [harmless(line.rstrip()) for line in lines]
    return kept if kept != [""] else []


def for_clipboard(text: str) -> str:
    """What is about to be copied: lines and tabs stay, and nothing that a shell would obey when it
    is pasted."""
    return "\t".join(map(harmless, text.split("\t")))


def for_terminal(text: str) -> str:
    """What is about to be written to a terminal: our own colours stay, nothing else steers it."""
    if _HARM.search(text) is None:
        return text
    return _OURS_OR_HARM.sub(lambda found: found[1] or _REPLACED, text)


def typed(pattern: str, **words: str) -> str:
    """A command to be typed: `pattern.format` with each word quoted for a shell. A word that cannot
    be typed as it is, or that a program would take for an option, is named instead:
    `ssh {host} true` becomes `ssh HOST true`."""
    return pattern.format(**{name: shell_word(word, name) for name, word in words.items()})


def shell_word(word: str, name: str) -> str:
    """`word` as one argument of a command; `name` in capitals where that would not be it, as of
    what was shortened or replaced before."""
    whole = 0 < len(word) <= LONGEST_WORD and not any(mark in word for mark in f"\n…{_REPLACED}")
    if not whole or word.startswith("-") or not is_harmless(word):
        return name.upper()
    return shlex.quote(word)


def file_name(text: str) -> str:
    """A name for a file, the same for the same text: letters, digits and `._-`; what had to be
    changed ends in a digest, so that two such texts do not meet in one file."""
    kept = re.sub(r"[^\w.-]", "_", harmless(text)).lstrip(".-")
    kept = kept.encode()[:_LONGEST_FILE_BYTES].decode(errors="ignore")
    if kept and kept == text and not _DEVICES.match(kept):
        return kept
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    return f"{'_' if _DEVICES.match(kept) else ''}{kept}-{digest}" if kept else digest


# ------------------------------------------------------------------ in ASCII alone


def speaks_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal is said to take UTF-8. Where nothing is said, it does."""
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        if value := environment.get(name):
            return "utf" in value.lower()
    return True


def can_write(encoding: str | None) -> bool:
    """Whether all that is drawn can be written in that encoding."""
    try:
        "".join(_SAME).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


_SAME = {  # what is drawn heavy is not like what is light, and each height of a bar is another
    "│▏▎▍▌▋▊▐▕┆┊❚⏸": "|",
    "─▔╌┈▃–—−": "-",
    "━═▆": "=",
    "┌┐└┘├┤┬┴┼╭╮╰╯╔╗╚╝▅✔✓": "+",
    "┃║┏┓┗┛█▉": "#",
    "▁": "_",
    "▂▫": ",",
    "▄▀": "~",
    "▇▓•": "*",
    "▒": "%",
    "░": ":",
    "·∙…": ".",
    "●◉▪○◌": "o",
    "✖✗×": "x",
    "▲△": "^",
    "▼▽↓": "v",
    "▶►→›❯": ">",
    "◀◄←‹": "<",
    "“”„": '"',
    "‘’": "'",
    "µμ": "u",
    "α": "a",
    "β": "b",
}
_ASCII = str.maketrans({glyph: plain for glyphs, plain in _SAME.items() for glyph in glyphs})


def to_ascii(text: str) -> str:
    """`text` in ASCII, each sign as the one that is most like it; what has no likeness is `?`."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()
