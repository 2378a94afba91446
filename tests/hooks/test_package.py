"""The hooks alone, as an image of a job gets them: small, and they record without oncall."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oncall import native
from oncall.node.rings.ring_layout import RecordKind

PROJECT = Path(__file__).parents[2]
MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What packaging/hooks.sh wrote of the libraries that are installed here."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("there is no dpkg-deb here (apt-get install dpkg)")
    into, folder = tmp_path_factory.mktemp("packed"), native.hooks_folder()
    command = (PROJECT / "packaging" / "hooks.sh", folder.name, "1.2", folder.parent, into)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return into


def test_the_deb_and_the_tarball_are_small_and_hold_the_same(packed: Path) -> None:
    deb, tarball = sorted(packed.iterdir(), key=lambda path: path.suffix == ".xz")
    assert deb.suffix == ".deb"
    assert all(10_000 < path.stat().st_size < MOST_BYTES for path in (deb, tarball))
    listed = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for command in (("dpkg-deb", "--contents", deb), ("tar", "tf", tarball))
    ]
    for text in listed:
        assert text.count(".so\n") == 3 and "opt/oncall/hooks/env.sh\n" in text


def test_a_job_records_itself_by_its_env_file(
    packed: Path, tmp_path: Path, calling: Callable[..., Any]
) -> None:
    (deb,) = packed.glob("*.deb")
    root = tmp_path / "image"
    subprocess.run(("dpkg-deb", "--extract", deb, root), check=True)
    script = root / "opt/oncall/hooks/env.sh"
    script.write_text(script.read_text().replace("=/opt", f"={root}/opt"))
    shell = f'unset LD_PRELOAD; . {script}; echo "$LD_PRELOAD"; echo "$NCCL_PROFILER_PLUGIN"'
    said = subprocess.run(("sh", "-c", shell), capture_output=True, text=True, check=True).stdout
    preload, plugin = said.split()
    assert preload == plugin == str(root / "opt/oncall/hooks/liboncall_hooks.so")
    process = calling("newer", hooked=False, LD_PRELOAD=preload)
    assert process.calls("init 1 4 7", "all_reduce 0 10") == [0, 0]
    assert process.recorded.records(RecordKind.ENTERED)["count"].tolist() == [10]
