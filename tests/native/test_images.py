"""Which C libraries processes and images have, and what the hooks would do beside them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from oncall.core.errors import BadInput
from oncall.fleet.doctor_images import hooks_for_launchers, image_in, images_here, images_status
from oncall.native.elf import ElfFile
from oncall.native.images import c_library_of_folder, survey


@pytest.fixture(scope="module")
def hooks() -> list[ElfFile]:
    return hooks_for_launchers()


@pytest.fixture(scope="session")
def libc_of(tmp_path_factory: pytest.TempPathFactory, c_compiler: str) -> Callable[[str], Path]:
    """A libc.so.6 as far as its versions go: those up to the one named."""
    folder = tmp_path_factory.mktemp("libc")

    def build(version: str) -> Path:
        library, script = folder / f"libc-{version}", folder / "versions"
        script.write_text(f"GLIBC_2.2.5 {{ global: f; }};\nGLIBC_{version} {{ global: g; }};\n")
        source = folder / "libc.c"
        source.write_text("void f(void) {}\nvoid g(void) {}\n")
        shared = ("-shared", "-fPIC", "-nostdlib", f"-Wl,--version-script={script}")
        subprocess.run([c_compiler, *shared, source, "-o", library], check=True)
        return library

    return build


class Proc:
    """A /proc with processes of images."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, mapped: str | None, libc: Path | None = None, inode: int = 0) -> None:
        process = self.root / "proc" / str(pid)
        process.mkdir(parents=True)
        (process / "comm").write_text("python3\n")
        lines = ["5581e0000000-5581e0002000 r--p 00000000 fd:00 77   /usr/bin/python3.10"]
        if mapped:
            inode = inode or pid
            lines.append(f"7f20c4a00000-7f20c4a28000 r--p 00000000 fd:00 {inode}   {mapped}")
        (process / "maps").write_text("\n".join(lines) + "\n")
        if mapped and libc:
            inside = self.root / f"image{pid}" / mapped.lstrip("/")
            inside.parent.mkdir(parents=True)
            shutil.copy(libc, inside)
            (process / "root").symlink_to(self.root / f"image{pid}")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_processes_of_images_are_distinguished(
    proc: Proc, libc_of: Callable[[str], Path], hooks: list[ElfFile]
) -> None:
    new, old = libc_of("2.39"), libc_of("2.12")
    proc.add(10, None)
    proc.add(11, "/usr/lib/x86_64-linux-gnu/libc.so.6", new)
    proc.add(12, "/usr/lib/x86_64-linux-gnu/libc.so.6", new, inode=11)
    proc.add(13, "/lib64/libc-2.12.so", old)
    proc.add(14, "/lib/ld-musl-x86_64.so.1", new)
    found = survey(proc.root / "proc")
    assert {(str(each.library), each.processes) for each in found.found} == {
        ("glibc 2.39", 2), ("glibc 2.12", 1), ("musl", 1),
    }  # fmt: skip
    images = images_here(hooks, proc.root / "proc")
    assert "glibc 2.39 in 2 processes" in images.text
    assert "record nothing" in images.text
    [problem] = images.problems
    assert "process 13 (python3)" in problem
    assert "hooks need glibc 2.17" in problem and "ends as it starts" in problem


def test_what_vanishes_or_is_no_libc_is_passed_over(proc: Proc, tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    proc.add(11, "/lib64/libc.so.6")
    proc.add(12, "/lib64/libc.so.6", tmp_path / "junk")
    (tmp_path / "proc/13").mkdir()
    assert survey(tmp_path / "proc").found == []


def test_a_process_may_not_keep_us_waiting(proc: Proc, tmp_path: Path) -> None:
    proc.add(11, "/lib64/libc.so.6")
    (tmp_path / "image/lib64").mkdir(parents=True)
    os.mkfifo(tmp_path / "image/lib64/libc.so.6")
    (tmp_path / "proc/11/root").symlink_to(tmp_path / "image")
    assert survey(tmp_path / "proc").found == []


def test_this_process_is_seen() -> None:
    """As the real /proc spells it; whatever C library that is."""
    found = survey().found
    assert sum(each.processes for each in found) >= 1
    assert all(each.library.glibc is None or each.library.glibc >= (2, 17) for each in found)
    assert images_status()["problems"] == []


@pytest.mark.parametrize("place", ["lib/x86_64-linux-gnu", "lib64", "usr/lib/aarch64-linux-gnu"])
def test_an_image_in_a_folder(
    tmp_path: Path, libc_of: Callable[[str], Path], hooks: list[ElfFile], place: str
) -> None:
    (tmp_path / place).mkdir(parents=True)
    shutil.copy(libc_of("2.16"), tmp_path / place / "libc-2.16.so")
    (tmp_path / place / "libc.so.6").symlink_to("libc-2.16.so")
    image = image_in(hooks, tmp_path)
    assert f"{tmp_path} has glibc 2.16" in image.text
    assert len(image.problems) == 1


def test_a_link_out_of_the_image_is_not_followed(
    tmp_path: Path, libc_of: Callable[[str], Path]
) -> None:
    """It would show this machine's C library as the image's."""
    (tmp_path / "image/lib64").mkdir(parents=True)
    (tmp_path / "image/lib64/libc.so.6").symlink_to(libc_of("2.39"))
    with pytest.raises(BadInput, match=r"holds no libc\.so\.6"):
        c_library_of_folder(tmp_path / "image")
