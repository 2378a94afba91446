"""The two lists of the incident screen, each with what it says of itself."""

from __future__ import annotations

from oncall.tui.widgets.reading_list import ReadingList


class Findings(ReadingList):
    """The list of findings."""

    HELP = """\
The top line names the culprit. Below it are all findings (✖ critical, ▲ warning, worst first, \
with confidence), then coverage. w shows the evidence of the finding under the cursor, c copies \
the next command, r shows the rank in the fleet, enter opens the reasoning."""


class Story(ReadingList):
    """The story of the finding under the cursor of the list."""

    HELP = """\
The reasoning: each question, its answer, and at the right how many rows of evidence gave it; → \
is the conclusion. w opens the rows, parameters and SQL of the step under the cursor, esc goes \
back to the findings."""
