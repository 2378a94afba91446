# ruff: noqa: E501 - lines of logs as programs print them
"""Text cut at a fixed width is joined; lines that are alike in length are not."""

from __future__ import annotations

import pytest

from oncall.importers.logs.reading import cut_width, joined

LINES = (
    "[rank4]: Traceback (most recent call last):\n"
    "W0411 20:12:03.118000 61011 torch/distributed/elastic/multiprocessing/api.py:897] Sending process "
    "61026 closing signal SIGTERM\n"
    "E0411 20:12:03.118000 61011 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: "
    "-9) local_rank: 1 (pid: 2168) of binary: /opt/conda/envs/train/bin/python3.11\n"
)


@pytest.mark.parametrize("columns", [60, 80])
def test_cut_lines_are_joined(columns: int) -> None:
    cut = "\n".join(
        "\n".join(line[at : at + columns] for at in range(0, max(1, len(line)), columns))
        for line in LINES.split("\n")
    ).encode()
    found = cut_width(cut)
    assert found == columns
    text, cuts = joined(cut, found)
    assert text.decode() == LINES
    assert len(cuts) == cut.count(b"\n") - LINES.count("\n")


def test_lines_of_one_form_are_as_their_program_wrote_them() -> None:
    alike = "".join(
        f"step {n:4d} | loss 2.{n:03d} | time 0.412 s | tokens 1048576 | gpu memory 61.2 GiB\n"
        for n in range(40)
    )
    assert cut_width(alike.encode()) is None


@pytest.mark.parametrize("prefix", ["{}: ", "{:2d}: ", "gpu{:02d}: ", "[default{}]:"])
def test_lines_that_a_launcher_numbers_are_as_their_program_wrote_them(prefix: str) -> None:
    alike = "".join(
        f"{prefix.format(n)}[rank{n}]:[E ProcessGroupNCCL.cpp:629] [Rank {n}] Watchdog caught collective "
        "operation timeout: WorkNCCL(SeqNum=77, OpType=ALLREDUCE) ran for 600012 milliseconds\n"
        for n in range(10)
    )
    assert cut_width(alike.encode()) is None
