"""The job at a glance as a pane: beside the story, or above it where there is little room."""

from __future__ import annotations

from rich.style import Style
from rich.text import Text

from oncall.tui.drawing.literal import LiteralText
from oncall.tui.drawing.states import state_styles
from oncall.tui.models.rates import Kind
from oncall.tui.screens.incident import overview
from oncall.tui.screens.rates.rate_line import kind_styles
from oncall.tui.widgets.roles import role_styles

BESIDE = 120  # columns of a screen from which it stands beside the story


class GlancePane(LiteralText):
    """Draws a `Glance`, as much of it as there is room for."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glance: overview.Glance | None = None

    def show(self, glance: overview.Glance) -> None:
        self._glance = glance
        self._draw()

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        self._draw()

    def _draw(self) -> None:
        glance, width = self._glance, self.content_size.width
        if glance is None or width < 20:
            return
        plain = self.app.ascii_only  # type: ignore[attr-defined]
        above = self.screen.size.width < BESIDE
        if above:
            lines = overview.narrow(glance, width, plain)
        else:
            lines = overview.roomy(glance, width, self.content_size.height, plain)
        styles = self._styles()
        text = Text(no_wrap=True, overflow="ellipsis")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            for piece, style in line:
                text.append(piece, styles[style])
        # Above the story it is as high as its text; beside it, as what is there.
        self.update(text, layout=above and len(lines) != self.content_size.height)

    def _styles(self) -> dict[str, Style]:
        """By what the model calls them."""
        kinds: dict[Kind, Style] = kind_styles(self)
        return {
            **role_styles(self),
            **{f"rate {kind}": style for kind, style in kinds.items()},
            **{f"state {state}": style for state, style in enumerate(state_styles(self.app))},
            "state -1": Style(),
        }
