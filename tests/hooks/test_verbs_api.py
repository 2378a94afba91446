"""Our own declarations of libibverbs' structs are those of rdma-core, where that is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

OURS = Path(__file__).parents[2] / "hooks" / "verbs_api.h"
# Members that stand for what is not declared, or that rdma-core names otherwise.
PADDING = {"operations", "before_poll", "between", "after", "wr_set_ud_addr", "wr_set_xrc_srqn"}
OPEN_ENDED = {"ibv_device", "ibv_context", "ibv_cq", "ibv_send_wr", "ibv_recv_wr", "ibv_qp_ex"}


def structs() -> dict[str, list[str]]:
    """The members of each struct that we declare."""
    text = re.sub(r"/\*.*?\*/", "", OURS.read_text(), flags=re.DOTALL)
    found = {}
    for name, body in re.findall(r"struct (ibv_\w+) \{(.*?)\n\};", text, re.DOTALL):
        plain = re.sub(r"__attribute__\(\(.*?\)\)\)|\[[^]]*\]", "", body)
        pointers = re.findall(r"\(\*(\w+)\)\([^;]*;", plain)
        plain = re.sub(r"[^;]*\(\*\w+\)\([^;]*;", "", plain)
        members = re.findall(r"(\w+)\s*(?=[,;])", plain)
        found[name] = [each for each in [*members, *pointers] if each not in PADDING]
    return found


def constants() -> list[str]:
    return re.findall(r"\b(IBV_\w+) =", OURS.read_text())


def reported(header: str, folder: Path) -> dict[str, int]:
    """Offsets, sizes and constants, as the C compiler has them with one of the two headers."""
    expressions = [*constants()]
    for name, members in structs().items():
        expressions += [f"offsetof(struct {name}, {member})" for member in members]
        expressions += [f"sizeof(((struct {name} *)0)->{member})" for member in members]
        expressions += [] if name in OPEN_ENDED else [f"sizeof(struct {name})"]
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({each}));' for each in expressions)
    source, program = folder / "timeouts.c", folder / "timeouts"
    source.write_text(
        f"#include <stddef.h>\n#include <stdio.h>\n#include {header}\n"
        f"int main(void) {{\n{lines}\nreturn 0; }}\n"
    )
    subprocess.run(["cc", "-std=gnu11", source, "-o", program], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, said.split()), strict=True))


def test_every_member_lies_where_rdma_core_has_it(tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler: `make test` installs one")
    probe = ["cc", "-fsyntax-only", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null"]
    if subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("no infiniband/verbs.h: install libibverbs-dev")
    ours, theirs = reported(f'"{OURS}"', tmp_path), reported("<infiniband/verbs.h>", tmp_path)
    assert len(structs()) >= 15 and len(ours) > 150
    assert {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]} == {}
