"""The diagnosis as one page for a browser, with nothing to load: for a colleague without oncall.

It is the Markdown report with every step's fact and SQL folded, and the drawings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from markdown_it import MarkdownIt
from markdown_it.token import Token

from oncall.core.diagnosis import Diagnosis
from oncall.render.markdown import MENTION, to_markdown
from oncall.views import words

# Wide lines of drawings and stacks scroll in their own box.
_STYLE = """
:root { color-scheme: light dark; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.4rem; border-left: .5rem solid #6b7280; padding-left: .75rem; }
h1.critical { border-color: #c1121f; } h1.warning { border-color: #e69f00; }
h2 { font-size: 1.15rem; margin-top: 2rem; } h3 { font-size: 1rem; }
pre, code { font: 13px/1.35 ui-monospace, "DejaVu Sans Mono", monospace; }
pre { overflow-x: auto; padding: .75rem; background: #8881; border-radius: .3rem; }
details > summary { cursor: pointer; color: #6b7280; font-size: .85rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def to_html(diagnosis: Diagnosis, *, drawings: Mapping[str, Sequence[str]]) -> str:
    """The whole page. Names and texts of the evidence are shown, never obeyed."""
    _, severity, sentence = words.headline(diagnosis)
    # Without HTML in it, Markdown can bring no element of its own.
    reader = MarkdownIt("commonmark", {"html": False})
    reader.add_render_rule("fence", _block)
    body = reader.render(to_markdown(diagnosis, explain=True, drawings=drawings))
    body = body.replace(f"@{escape(MENTION)}", "@")
    body = body.replace("<h1>", f'<h1 class="{severity or "none"}">', 1)
    return (
        '<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(sentence)}</title>\n<style>{_STYLE}</style></head>\n"
        f"<body>\n{body}</body>\n</html>\n"
    )


def _block(_: object, tokens: Sequence[Token], place: int, *_options: object) -> str:
    """A block as it is; SQL folded, as few read it."""
    text = f"<pre>{escape(tokens[place].content)}</pre>\n"
    if tokens[place].info == "sql":
        return f"<details><summary>SQL</summary>{text}</details>\n"
    return text
