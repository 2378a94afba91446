"""What is shipped loads in every image: checked by what its ELF headers ask for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncall.core.errors import BadInput
from oncall.native import (
    HOOKS,
    IBVERBS,
    VERBS,
    Architecture,
    hooks_folder,
    readers_library,
    standin_folder,
)
from oncall.native.elf import ElfFile, read_elf
from oncall.native.portability import OLDEST_GLIBC, unportable

LIBRARIES = [(each, name) for each in Architecture for name in (HOOKS, VERBS, IBVERBS)]


@pytest.mark.parametrize(("architecture", "name"), LIBRARIES)
def test_what_jobs_load_is_portable(architecture: Architecture, name: str) -> None:
    library = read_elf(hooks_folder(architecture) / name)
    assert library.machine == architecture
    assert list(unportable(library)) == []
    assert (0, 0) < library.glibc_needed <= OLDEST_GLIBC


def test_nothing_else_for_linux_is_shipped() -> None:
    """The stand-in and its programs ask for no newer glibc either: a wheel is one for all."""
    root = hooks_folder().parent
    shipped = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    standin = {f"standin/{name}" for name in ("libnccl.so.2", "train", "collectives")}
    readers = readers_library()
    assert shipped == {
        *(f"{each}/{name}" for each, name in LIBRARIES),
        *(*standin, readers.relative_to(root).as_posix()),
    }
    assert list(unportable(read_elf(readers))) == []
    for path in standin_folder().iterdir():
        assert read_elf(path).glibc_needed <= OLDEST_GLIBC
        assert not read_elf(path).executable_stack


@pytest.fixture(scope="module")
def hooks() -> ElfFile:
    return read_elf(hooks_folder(Architecture.AARCH64) / HOOKS)


@pytest.mark.parametrize(
    ("asks", "words"),
    [
        ({"versions": (("libc.so.6", "GLIBC_2.34"),)}, "GLIBC_2.34 of libc.so.6"),
        ({"versions": (("libc.so.6", "GLIBC_2.18"),)}, "GLIBC_2.18"),
        ({"versions": (("libc.so.6", "GLIBC_PRIVATE"),)}, "GLIBC_PRIVATE"),
        ({"needed": ("libc.so.6", "libgcc_s.so.1")}, "libgcc_s.so.1"),
        ({"needed": ("libibverbs.so.1",)}, "libibverbs.so.1"),
        ({"undefined": ("__snprintf_chk",)}, "musl lacks"),
        ({"executable_stack": True}, "executable stack"),
        ({"text_relocations": True}, "TEXTREL"),
        ({"writable_code": True}, "writable and executable"),
        ({"alignment_bytes": 4096}, "pages may have 65536"),
    ],
)
def test_what_asks_for_more_is_named(hooks: ElfFile, asks: dict[str, Any], words: str) -> None:
    [problem] = unportable(replace(hooks, **asks))
    assert words in problem


def test_only_the_stand_in_needs_libibverbs() -> None:
    stand_in = read_elf(hooks_folder() / IBVERBS)
    assert "libibverbs.so.1" in stand_in.needed
    assert list(unportable(replace(stand_in, soname=VERBS))) != []


def check(path: Path) -> subprocess.CompletedProcess[str]:
    """As the build runs it."""
    command = [sys.executable, "-m", "oncall.native.portability", path]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def compiled(tmp_path: Path, c_compiler: str) -> Callable[..., Path]:
    """A library by the system's compiler, with these options."""

    def compile_(*options: str, text: str = "int oncall;") -> Path:
        source, library = tmp_path / "library.c", tmp_path / "library.so"
        source.write_text(text)
        subprocess.run(
            [c_compiler, "-shared", "-w", *options, source, "-o", library],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        return library

    return compile_


@pytest.mark.parametrize(
    ("options", "text", "words"),
    [
        (["-fPIC", "-Wl,-z,execstack"], "int oncall;", "executable stack"),
        (["-fPIC", "-Wl,--no-as-needed", "-lm"], "int oncall;", "needs libm.so.6"),
        (
            ["-fno-PIC", "-mcmodel=large", "-Wl,-z,notext"],
            "int oncall; int *f(void) { return &oncall; }",
            "TEXTREL",
        ),
    ],
)
def test_the_build_would_fail(
    compiled: Callable[..., Path], options: list[str], text: str, words: str
) -> None:
    library = compiled(*options, text=text)
    done = check(library)
    assert done.returncode == 1
    assert words in done.stderr and str(library) in done.stderr


def test_versions_are_read_from_the_file(compiled: Callable[..., Path]) -> None:
    text = (
        'void *memcpy(void *, const void *, unsigned long);\n__asm__(".symver memcpy, memcpy@%s");'
    )
    text += "void f(char *a, char *b, long n) { memcpy(a, b, n); }"
    if Architecture.here() != "x86_64":
        pytest.skip("the versions named are x86_64's")
    found = read_elf(compiled("-fPIC", "-fno-builtin", text=text % "GLIBC_2.14"))
    assert ("libc.so.6", "GLIBC_2.14") in found.versions
    assert "memcpy" in found.undefined
    assert found.glibc_needed == (2, 14)


def test_without_zig_nothing_is_built(tmp_path: Path) -> None:
    """Rather than by the system's compiler, for the system's glibc."""
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("no cmake")
    command = [cmake, "-S", Path(__file__).parents[2], "-B", tmp_path, "-DONCALL_ZIG=/no/zig"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    said = " ".join(done.stderr.split())
    assert "no zig to compile with" in said and "pip install ziglang" in said


@pytest.mark.parametrize("content", [b"", b"junk", b"\x7fELF", b"\x7fELF\x02\x01\x01" + bytes(200)])
def test_what_is_no_library_is_said(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(BadInput):
        read_elf(tmp_path / "file")
    assert check(tmp_path / "file").returncode == 1


def test_a_fifo_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "libc.so.6")
    with pytest.raises(BadInput, match="not a regular file"):
        read_elf(tmp_path / "libc.so.6")


@given(data=st.data())
def test_damage_is_an_error_and_never_another(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Headers and tables of names, where a change counts, with bytes of them changed."""
    content = bytearray((hooks_folder() / HOOKS).read_bytes())
    end = data.draw(st.sampled_from([64, 704, 8192, len(content)]))
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, end - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content), end]))])
    try:
        assert isinstance(read_elf(path).needed, tuple)
    except BadInput as error:
        assert "damaged" in str(error) or "is no" in str(error)
