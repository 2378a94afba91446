"""Text that others wrote, fit to be shown, typed and used as a file's name."""

from __future__ import annotations

import shlex
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.printable import (
    LONGEST_LINE,
    LONGEST_NAME,
    clean,
    clean_lines,
    file_name,
    for_terminal,
    harmless,
    named,
    shell_word,
    short,
    typed,
)

from ..hostile import PIECES, unsafe_in

# Arabic and Kaithi signs of numbers: format characters, but drawn.
_DRAWN = {*map(chr, range(0x600, 0x606)), "\u06dd", "\u0890", "\u0891", "\u08e2"}


def test_every_character_that_unicode_calls_control_or_format_is_replaced() -> None:
    kept = {
        character
        for character in map(chr, range(sys.maxunicode + 1))
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        and harmless(character) == character
    }
    assert kept == {"\n"} | _DRAWN


@given(st.text() | st.sampled_from(PIECES))
def test_clean_is_one_harmless_bounded_line_and_clean_text_stays(text: str) -> None:
    once = clean(text)
    assert "\n" not in once and not unsafe_in(once) and len(once) <= LONGEST_LINE
    assert clean(once) == once
    assert len(short(text)) <= LONGEST_NAME
    assert len(harmless(text)) == len(text)


def test_what_people_write_stays_as_it_is() -> None:
    for text in (
        "llama-70b",
        "gpu[001-512]",
        "漢字 e\u0301 \u0627\u0644",
        "5 µs · a → b ✔",
        "❤\ufe0f",
    ):
        assert clean(text) == text


def test_a_long_run_of_blanks_takes_no_longer_than_another_text() -> None:
    assert clean("a" + " " * 2_000_000 + "b").startswith("a")


def test_lines_keep_their_indentation_and_nothing_else_breaks_them() -> None:
    assert clean_lines("\n  a\n\tb\u2028c\x85d\n") == ["  a", "    b\ufffdc\ufffdd"]
    assert clean_lines("") == []


def test_own_colours_reach_the_terminal_and_nothing_else_that_steers() -> None:
    ours = "\x1b[1;31m✖\x1b[0m a\tb\n\r\x1b[K17 of 512"
    assert for_terminal(ours) == ours
    theirs = for_terminal("\x1b]0;t\x07\x1b[2J\x1b[1A\x9b31m\rx\u202e")
    assert theirs == "\ufffd]0;t\ufffd\ufffd[2J\ufffd[1A\ufffd31m\ufffdx\ufffd"


@given(st.text(min_size=1) | st.sampled_from(PIECES))
def test_a_word_of_a_command_is_one_argument_or_is_not_there(word: str) -> None:
    given_to_shell = shell_word(word, "host")
    assert shlex.split(given_to_shell) in ([word], ["HOST"])
    assert not unsafe_in(given_to_shell)


@pytest.mark.parametrize("name", ["; touch owned", "$(touch owned)", "`touch owned`", "a' b", "&"])
def test_a_shell_runs_nothing_of_a_name(tmp_path: Path, name: str) -> None:
    command = typed("echo {host}", host=name)
    done = subprocess.run(
        ["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{name}\n" and not list(tmp_path.iterdir())


def test_a_name_that_would_be_an_option_is_not_typed() -> None:
    assert typed("ssh {host} true", host="-oProxyCommand=reboot") == "ssh HOST true"
    assert typed("ssh {host} true", host="gpu017") == "ssh gpu017 true"


@given(st.text() | st.sampled_from(PIECES))
def test_a_file_of_that_name_lies_in_its_folder(text: str) -> None:
    name = file_name(text)
    assert name and Path(name).name == name and name[0] not in ".-"
    assert len(f"{name}-20261120T031000.oncall.notes".encode()) <= 255
    assert not unsafe_in(name)


def test_what_cannot_be_typed_is_chosen_by_what_stands_for_it() -> None:
    evil, long = "a\x1b[2Jb", "n" * 300
    assert named(clean(evil), [evil, "other"]) == evil
    assert named(short(long), [long, "other"]) == long
    assert named(evil, [evil, clean(evil)]) == evil
    assert named(clean(evil), [evil, clean(evil)]) == clean(evil)
    assert named(clean(evil), [evil, evil.replace("\x1b", "\x1c")]) is None
    assert named("x", [evil]) is None


def test_different_names_are_different_files_and_ordinary_ones_stay() -> None:
    assert file_name("llama-70b.v2") == "llama-70b.v2"
    assert len({file_name(text) for text in ("a/b", "a_b", "a\nb", "x" * 300, "x" * 301)}) == 5
    assert file_name("CON").startswith("_CON-") and file_name("con.txt").startswith("_con")
