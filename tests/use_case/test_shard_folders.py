"""Folders of shards are found wherever they are given."""

from __future__ import annotations

from pathlib import Path

import pytest

from oncall.core.errors import UsageError
from oncall.use_case.recordings import shards_in


@pytest.fixture
def copied(tmp_path: Path) -> dict[str, Path]:
    """What `scp` leaves of two nodes, with names alone: the catalogue reads no more."""
    folders = {node: tmp_path / node / "data" for node in ("gpu001", "gpu002")}
    for node, folder in folders.items():
        folder.mkdir(parents=True)
        (folder / f"{node}.1000-2000.duckdb").touch()
    return folders


def test_of_all_nodes_in_one_folder_or_each_by_itself(copied: dict[str, Path]) -> None:
    above = copied["gpu001"].parent.parent
    assert shards_in([str(above)]) == copied
    assert shards_in([str(folder) for folder in copied.values()]) == copied
    assert shards_in([str(folder.parent) for folder in copied.values()]) == copied


def test_recordings_are_no_shards_and_beside_them_a_clear_error(
    copied: dict[str, Path], tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n")
    assert shards_in([str(log), str(tmp_path / "nowhere")]) == {}
    with pytest.raises(
        UsageError, match=r"gpu001/data holds shards of collectors, .*train\.log does not"
    ):
        shards_in([str(copied["gpu001"]), str(log)])
