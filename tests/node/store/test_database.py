"""What went wrong, in one line that a person can read."""

from __future__ import annotations

import subprocess
import sys

import pytest

from oncall.evidence.statements import reason
from oncall.node.store.database import connect


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (ValueError("one\ntwo"), "one"),
        (ValueError(""), "ValueError"),
        (
            RuntimeError(
                "IO Error: Async write failed for range [offset=1, size=2]: "
                '{"exception_type":"IO","exception_message":"Could not write \\"a\\": full","x":1}'
            ),
            'Could not write "a": full',
        ),
    ],
)
def test_reasons(error: Exception, reported: str) -> None:
    assert reason(error) == reported


def test_the_network_and_pythons_variables_are_out_of_reach() -> None:
    con = connect()
    mine = {"a": [1]}
    assert mine
    with pytest.raises(Exception, match="does not exist"):
        con.execute("FROM mine")
    con.close()


def test_nothing_is_drawn_on_stdout_by_a_program_without_a_file() -> None:
    setting = "print({}.execute(\"SELECT current_setting('enable_progress_bar')\").fetchone())"
    program = (
        "from oncall.evidence.incident import Incident\n"
        "from oncall.node.store.database import connect\n"
        + setting.format("connect()")
        + "\n"
        + setting.format("Incident.empty().con")
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["(False,)", "(False,)"]
