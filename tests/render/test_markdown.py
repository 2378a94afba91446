"""The ticket: what a reader of the rendered markdown sees is what the diagnosis says."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from oncall.core.diagnosis import Diagnosis
from oncall.core.printable import clean
from oncall.render.markdown import escape, to_markdown

GOLDEN = Path(__file__).parent / "golden" / "hang.md"
RENDERER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def tokens(source: str) -> list[Token]:
    flat = []
    for token in RENDERER.parse(source):
        flat += [token, *(token.children or [])]
    return flat


def test_golden(hang: Diagnosis) -> None:
    text = to_markdown(hang, explain=True)
    if os.environ.get("ONCALL_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_a_fence_in_the_evidence_does_not_end_the_block(hang: Diagnosis) -> None:
    root = hang.findings[0]
    stack = replace(root.stacks[0], frames=("```", "<script>alert(1)</script>"))
    source = to_markdown(replace(hang, findings=(replace(root, stacks=(stack,)),)))
    (block,) = [token for token in tokens(source) if token.type == "fence" and not token.info]
    assert block.content == "```\n<script>alert(1)</script>\n"


@given(st.text())
@example("1. not a list")
@example("# not a title")
@example("- no\n- list")
@example("<b>x</b> [a](b) ![c](d) &lt; `x` **y** ~~z~~ a_b_c | d")
@example("+ x")
@example("=====")
@example("https://example.org")
def test_escaped_text_reads_as_it_was(text: str) -> None:
    parsed = tokens(escape(text))
    assert {token.type for token in parsed} <= {
        "paragraph_open",
        "paragraph_close",
        "inline",
        "text",
        "text_special",
        "softbreak",
    }
    read = "".join(token.content for token in parsed if token.type in ("text", "text_special"))
    assert (
        read == " ".join(clean(text).split(" ")).strip(" ") or read.split() == clean(text).split()
    )


def test_no_html_ever(hang: Diagnosis) -> None:
    hostile = replace(
        hang,
        job="`<img src=x onerror=alert(1)>`",
        notes=("<script>alert(1)</script>", "[x](javascript:alert(1))"),
    )
    kinds = {token.type for token in tokens(to_markdown(hostile))}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}
