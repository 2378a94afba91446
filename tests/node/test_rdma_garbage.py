"""Whatever a tree like sysfs holds, reading it neither fails nor invents."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncall.core.units import NS_PER_S
from oncall.evidence.columns import create_table_sql, insert
from oncall.evidence.schema import BY_NAME
from oncall.node.common.source import Instant
from oncall.node.rdma.rdma_nics import RdmaNicSource
from oncall.node.store.batch import Batch, joined

from . import sysfs

GARBAGE = st.binary(max_size=60) | st.sampled_from(
    [b"9" * 5000, b"-0", b"\0", b"N/A (no PMA)", b"4: ACTIVE", b"inf Gb/sec", b"::ffff:1.2.3.4"]
)


class NoStatistics:
    def read(self, interface: str) -> dict[str, int]:
        if "\0" in interface:
            raise ValueError("embedded null byte")
        raise OSError(19, f"No such device: {interface}")

    def close(self) -> None:
        pass


def spoil(path: Path, how: int, garbage: bytes) -> None:
    """Make of a file another thing, or nothing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    match how:
        case 0:
            path.write_bytes(garbage)
        case 1:
            path.symlink_to(path)
        case 2:
            path.mkdir()
        case 3:
            pass  # it is gone


def readings(root: Path) -> list[Batch]:
    """Two readings, far enough from one another that all is looked at twice."""
    source = RdmaNicSource(root, "gpu017", NS_PER_S // 4, NoStatistics())
    reported: list[Batch] = []
    for at_ns in (10 * NS_PER_S, 20 * NS_PER_S):
        now = Instant(at_ns, at_ns)
        reported += [*source.collect(now).batches, *source.current_state(now)]
    return reported


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32), garbage=st.lists(GARBAGE, min_size=1, max_size=12))
def test_a_spoilt_tree_gives_rows_that_a_store_takes(seed: int, garbage: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sysfs.mlx5(root)
        sysfs.rxe(root)
        choose = random.Random(seed)
        for text in garbage:
            files = sorted(path for path in root.rglob("*") if "class" in path.parts)
            if files:
                spoil(choose.choice(files), choose.choice((0, 0, 0, 1, 2, 3)), text)
        batches = readings(root)
    with duckdb.connect() as con:
        for batch in joined(batches):
            columns = BY_NAME[batch.table].columns
            con.execute(create_table_sql(batch.table, columns))
            assert insert(con, batch.table, columns, batch.columns) == batch.rows
        if any(batch.table == "nics" for batch in batches):
            assert con.execute("SELECT count(*) FROM nics WHERE tx_bytes < 0").fetchall() == [(0,)]


@pytest.mark.parametrize("made", ["file", "link to itself", "link to nowhere"])
def test_what_stands_in_the_place_of_the_folder_is_no_device(tmp_path: Path, made: str) -> None:
    where = tmp_path / "sys/class/infiniband"
    where.parent.mkdir(parents=True)
    match made:
        case "file":
            where.write_text("")
        case "link to itself":
            where.symlink_to(where)
        case "link to nowhere":
            where.symlink_to(tmp_path / "nowhere")
    assert readings(tmp_path) == []
