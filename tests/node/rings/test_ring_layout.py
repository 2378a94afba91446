"""The numpy dtypes and the C structs say the same of every byte."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from oncall.node.rings import ring_layout
from oncall.node.verbs import verbs_file

_HOOKS = Path(__file__).parents[3] / "hooks"
_HEADERS = (_HOOKS / "oncall_ring.h", _HOOKS / "oncall_verbs.h")
# C struct, or C struct and member of its union -> the dtype
_STRUCTS = {
    "struct oncall_header": ring_layout.HEADER,
    "struct oncall_progress": ring_layout.PROGRESS,
    "struct oncall_communicator": ring_layout.COMMUNICATOR,
    "struct oncall_transfer": ring_layout.TRANSFER,
    "struct oncall_record": ring_layout.RECORD,
    "struct oncall_record.entered": ring_layout.ENTERED,
    "struct oncall_record.enqueued": ring_layout.ENQUEUED,
    "struct oncall_record.described": ring_layout.DESCRIBED,
    "struct oncall_record.ended": ring_layout.ENDED,
    "struct oncall_record.transfer": ring_layout.TRANSFER_OVER,
    "struct oncall_record.group_call": ring_layout.GROUP,
    "struct oncall_verbs_header": verbs_file.HEADER,
    "struct oncall_queue_pair": verbs_file.QUEUE_PAIR,
    "struct oncall_request": verbs_file.REQUEST,
}
_ENUMS = {
    "ONCALL_RECORD_": ring_layout.RecordKind,
    "ONCALL_WAIT_": ring_layout.Wait,
    "ONCALL_COMMUNICATOR_": ring_layout.CommunicatorState,
    "ONCALL_": ring_layout.Operation,
    "ONCALL_QUEUE_PAIR_": verbs_file.QueuePairState,
}


@pytest.fixture(scope="module")
def c_says(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Sizes, offsets and constants by name, as the C compiler has them."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: `make test` installs one")
    folder = tmp_path_factory.mktemp("layout")
    expressions = [*_expressions()]
    lines = "\n".join(f'printf("%llu\\n", (unsigned long long)({e}));' for e in expressions)
    source = folder / "layout.c"
    source.write_text(
        "#include <stddef.h>\n#include <stdio.h>\n"
        + "".join(f'#include "{header}"\n' for header in _HEADERS)
        + f"int main(void) {{\n{lines}\nreturn 0; }}\n"
    )
    subprocess.run([compiler, "-std=gnu11", source, "-o", folder / "layout"], check=True)
    said = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    return dict(zip(expressions, map(int, said.split()), strict=True))


def _expressions() -> list[str]:
    written = ["ONCALL_RING_MAGIC", "ONCALL_RING_LAYOUT"]
    written += ["ONCALL_VERBS_MAGIC", "ONCALL_VERBS_LAYOUT"]
    for struct, dtype in _STRUCTS.items():
        written.append(f"sizeof({_outer(struct)})")
        for name in dtype.names or ():
            written += [_offset(struct, name), _size(struct, name)]
    return written + [prefix + member.name for prefix, kind in _ENUMS.items() for member in kind]


def _outer(struct: str) -> str:
    return struct.partition(".")[0]


def _member(struct: str, name: str) -> str:
    inner = struct.partition(".")[2]
    shared = name in (ring_layout.RECORD.names or ())
    return f"{inner}.{name}" if inner and not shared else name


def _offset(struct: str, name: str) -> str:
    return f"offsetof({_outer(struct)}, {_member(struct, name)})"


def _size(struct: str, name: str) -> str:
    return f"sizeof((({_outer(struct)} *)0)->{_member(struct, name)})"


@pytest.mark.parametrize("struct", _STRUCTS)
def test_every_field_lies_where_c_puts_it(struct: str, c_says: dict[str, int]) -> None:
    dtype = _STRUCTS[struct]
    assert dtype.itemsize == c_says[f"sizeof({_outer(struct)})"]
    assert dtype.fields is not None
    for name, (kind, offset, *_) in dtype.fields.items():
        assert (offset, kind.itemsize) == (
            c_says[_offset(struct, name)],
            c_says[_size(struct, name)],
        ), name


@pytest.mark.parametrize("struct", [name for name in _STRUCTS if "." not in name])
def test_no_field_of_c_is_left_out(struct: str) -> None:
    text = re.sub(
        r"/\*.*?\*/", "", "".join(header.read_text() for header in _HEADERS), flags=re.DOTALL
    )
    body = re.search(rf"{struct} \{{(.*?)\n\}}", text, re.DOTALL)
    assert body is not None
    outside_union = re.sub(r"union \{.*\};", "", body[1], flags=re.DOTALL)
    plain = re.sub(r"__attribute__\(\(.*?\)\)\)|\[[^]]*\]", "", outside_union)
    names = {
        name
        for declaration in re.findall(r"[\w ]+?\s+(\w+(?:\s*,\s*\w+)*)\s*;", plain)
        for name in re.split(r"\s*,\s*", declaration)
    }
    assert names == set(_STRUCTS[struct].names or ()) - {"payload"}


def test_constants_are_the_same(c_says: dict[str, int]) -> None:
    assert c_says["ONCALL_RING_MAGIC"] == ring_layout.MAGIC
    assert c_says["ONCALL_RING_LAYOUT"] == ring_layout.LAYOUT_VERSION
    assert c_says["ONCALL_VERBS_MAGIC"] == verbs_file.MAGIC
    assert c_says["ONCALL_VERBS_LAYOUT"] == verbs_file.LAYOUT_VERSION
    for prefix, kind in _ENUMS.items():
        for member in kind:
            assert c_says[prefix + member.name] == member.value


def test_records_of_a_kind_are_views() -> None:
    records = np.zeros(3, ring_layout.RECORD)
    records["kind"] = [1, 5, 1]
    records.view(ring_layout.ENTERED)["sequence"] = [7, 8, 9]
    entered = records[records["kind"] == ring_layout.RecordKind.ENTERED]
    assert entered.view(ring_layout.ENTERED)["sequence"].tolist() == [7, 9]
