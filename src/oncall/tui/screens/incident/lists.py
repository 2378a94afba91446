"""The two lists of the incident screen, each with what it says of itself."""

from __future__ import annotations

from oncall.tui.widgets.reading_list import ReadingList


class Findings(ReadingList):
    """The list of findings."""

    HELP = """\
The top line names the culprit. Below it, every finding (✖ critical, ▲ warning, worst first, with \
how sure it is), and last what was seen of the job. w shows the evidence of the one under the \
cursor, c copies what to type next, r shows the rank among the others, enter reads the story."""


class Story(ReadingList):
    """The story of the finding under the cursor of the list."""

    HELP = """\
Why it is believed: each question that was asked, its answer, and at the right how many rows of \
evidence answered it; → is the conclusion. w opens the rows, parameters and SQL of the step under \
the cursor, esc goes back to the findings."""
