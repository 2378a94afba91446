"""`oncall diagnose` from path to exit code, on evidence made by hand."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from oncall.cli.main import main
from oncall.cli.options import parse_overrides
from oncall.core.errors import UsageError
from oncall.evidence.incident import Incident
from oncall.render.contract import schema
from oncall.use_case.recordings import parse_instant

S = 10**9
START_NS = 1_795_142_520 * S  # 2026-11-20 02:42:00 UTC


@dataclass(frozen=True)
class Left:
    """What the process left: its exit code and its two streams."""

    code: int
    out: str
    err: str


Oncall = Callable[..., Left]


@pytest.fixture
def diagnose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Oncall:
    """`oncall diagnose ARGUMENTS`, in this process."""

    def run(*arguments: object) -> Left:
        monkeypatch.setattr(sys, "argv", ["oncall", "diagnose", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return Left(int(left.value.code or 0), shown.out, shown.err)

    return run


def evidence(**columns: Any) -> dict[str, Any]:
    """Operations of four ranks in one communicator: each one second, ten seconds apart."""
    rounds, ranks = 50, 4
    seq = [n for n in range(rounds) for _ in range(ranks)]
    rows = {
        "job": "llm",
        "comm": 7,
        "kind": "coll",
        "op": "AllReduce",
        "bytes": 1 << 20,
        "seq": seq,
        "rank": [rank for _ in range(rounds) for rank in range(ranks)],
        "enqueued_ns": [START_NS + 10 * S * n for n in seq],
        "started_ns": [START_NS + 10 * S * n for n in seq],
        "ended_ns": [START_NS + 10 * S * n + S for n in seq],
        "done": True,
        "observed_ns": START_NS + 2200 * S,
    }
    return rows | columns


def save(path: Path, ops: dict[str, Any], members: int = 4) -> Path:
    with Incident.empty() as incident:
        incident.append("jobs", {"job": "llm", "world_size": members})
        ranks = list(range(members))
        incident.append(
            "comms",
            {"job": "llm", "comm": 7, "rank": ranks, "comm_rank": ranks, "size": members},
        )
        incident.append("ops", ops)
        incident.save(path)
    return path


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Incidents by name. `hang`: rank 2 never enters the last operation; the others have waited
    there for half an hour."""
    rows = evidence()
    last = max(rows["seq"])
    keep = [n for n, (seq, rank) in enumerate(zip(rows["seq"], rows["rank"], strict=True))
            if (seq, rank) != (last, 2)]  # fmt: skip
    cut = {
        name: [value[n] for n in keep] if isinstance(value, list) else value
        for name, value in rows.items()
    }
    cut["done"] = [seq != last for seq in cut["seq"]]
    cut["ended_ns"] = [
        end if done else None for end, done in zip(cut["ended_ns"], cut["done"], strict=True)
    ]
    folder = tmp_path_factory.mktemp("saved")
    return {
        "healthy": save(folder / "healthy.oncall", rows),
        "hang": save(folder / "hang.oncall", cut),
    }


@pytest.fixture
def healthy(saved: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(saved["healthy"], tmp_path))


@pytest.fixture
def hang(saved: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copy(saved["hang"], tmp_path))


def test_healthy_is_zero(diagnose: Oncall, healthy: Path) -> None:
    left = diagnose(healthy)
    assert (left.code, left.err) == (0, "")
    assert left.out.startswith("✔ No fault found\n")
    assert "4/4 ranks" in left.out


def test_a_finding_is_one_and_names_the_rank(diagnose: Oncall, hang: Path) -> None:
    left = diagnose(hang)
    assert (left.code, left.err) == (1, "")
    assert "rank 2" in left.out.splitlines()[0]
    assert max(map(len, left.out.splitlines())) <= 80


def test_formats_agree_on_the_rank(diagnose: Oncall, hang: Path) -> None:
    document = json.loads(diagnose(hang, "--format", "json").out)
    jsonschema.validate(document, schema())
    assert [one["rank"] for one in document["findings"][0]["blame"]] == [2]
    assert diagnose(hang, "--format", "markdown").out.startswith("# ✖ Critical: ")


def test_what_cannot_be_read_is_json_too(diagnose: Oncall, tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}.bin").write_bytes(bytes(range(256)))
    left = diagnose(tmp_path, "--format", "json")
    document = json.loads(left.out)
    jsonschema.validate(document, schema())
    assert (left.code, document["result"]) == (2, "error")
    assert left.err == f"oncall: {document['error']}\n"
    assert "2.bin: not a recording that oncall knows and 6 more" in document["error"]


def test_explain_shows_the_sql(diagnose: Oncall, hang: Path) -> None:
    assert "SELECT" not in diagnose(hang).out
    assert "SELECT" in diagnose(hang, "--explain").out


def test_colour_only_when_asked(diagnose: Oncall, hang: Path) -> None:
    assert "\x1b" not in diagnose(hang).out
    assert "\x1b[" in diagnose(hang, "--color", "always").out


def test_too_little_seen_is_three(diagnose: Oncall, tmp_path: Path) -> None:
    path = save(tmp_path / "few.oncall", evidence(), members=400)
    left = diagnose(path, "--param", "hang.standstill_after=1 d", "--symptom", "slow")
    assert left.code == 3
    assert "✔" not in left.out
    assert left.err.startswith("oncall: inconclusive: ")


def test_an_empty_incident_is_never_healthy(diagnose: Oncall, tmp_path: Path) -> None:
    with Incident.empty() as incident:
        incident.save(tmp_path / "empty.oncall")
    left = diagnose(tmp_path / "empty.oncall")
    assert left.code == 3
    assert "✔" not in left.out


@pytest.mark.parametrize(
    ("last", "code"),
    [
        ("", 0),
        ("FATAL: the frobnicator of gpu017 exploded", 3),
        ("thread 'main' panicked at src/main.rs:5:5: index out of bounds", 3),
        ("panic: runtime error: index out of range [5] with length 3", 3),
        ("terminate called after throwing an instance of 'c10::Error'", 3),
        ("free(): invalid pointer", 3),
        ("Illegal instruction (core dumped)", 3),
        ("job.sh: line 3:  4711 Killed                  python train.py", 1),
        ("ERROR:root:the state of the optimizer is incomplete", 3),
        ("bash: line 9: echo: write error: Disk quota exceeded", 3),
        ("2026-03-14 02:41:40 ERROR: Saving checkpoint failed", 3),
        ('{"level": "error", "msg": "giving up"}', 3),
        ("make: *** [Makefile:41: train] Error 2", 1),
        ("wandb: ERROR Failed to sync 2 files", 0),
        ("data.py:3: UserWarning: could not read exif", 0),
    ],
)
def test_a_log_of_all_steps_is_healthy_unless_its_last_words_are_of_a_failure(
    diagnose: Oncall, tmp_path: Path, last: str, code: int
) -> None:
    steps = [
        f"iteration {n}/30 | loss 2.3 | elapsed time per iteration (ms): 1000.1"
        for n in range(1, 31)
    ]
    log = tmp_path / "job.out"
    log.write_text("\n".join([*steps, last, ""]))
    left = diagnose(log)
    assert left.code == code
    assert code == 0 or "job.out:31" in left.out
    # What the job outlived is no sign of how it ended.
    log.write_text("\n".join([*steps[:-5], last, *steps[-5:], ""]))
    assert diagnose(log).code == 0


def test_a_damaged_dump_is_not_one_that_its_process_could_not_write(
    diagnose: Oncall, tmp_path: Path
) -> None:
    """Rank 5 is the cause. Rank 4, its only peer in one group, can be the cause only if it could
    not even write a dump."""
    fixture = Path(__file__).resolve().parents[2] / "fixtures/flight_recorder/not_entered"
    dumps = shutil.copytree(fixture, tmp_path / "dumps")
    (dumps / "rank_4").write_bytes((dumps / "rank_4").read_bytes()[::2])
    left = diagnose(dumps)
    assert left.code == 3
    assert "most likely ranks 4-5" in left.out


def test_a_parameter_changes_the_verdict(diagnose: Oncall, hang: Path) -> None:
    left = diagnose(hang, "--param", "hang.hang_after=10 h")
    assert (left.code, left.out.split()[1]) == (1, "WARNING")


def test_save_keeps_everything_and_reopens(diagnose: Oncall, hang: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.oncall"
    first = diagnose(hang, "--save", copy, "--at", "2026-11-20T02:43:00")
    assert first.code == 3  # few iterations had passed
    assert diagnose(copy).out == diagnose(hang).out
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    assert diagnose(hang, "--save", copy).code == 1  # an incident may be replaced


def test_save_never_replaces_anything_else(diagnose: Oncall, healthy: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes.oncall"
    notes.write_text("dear diary")
    for target in (notes, tmp_path / "x.db", tmp_path / "no" / "x.oncall"):
        left = diagnose(healthy, "--save", target)
        assert (left.code, left.out) == (2, "")
        assert str(target) in left.err
    assert notes.read_text() == "dear diary"
    assert not (tmp_path / "x.db").exists()


def test_a_folder_of_one_incident_is_that_incident(diagnose: Oncall, hang: Path) -> None:
    assert diagnose(hang.parent).code == 1


def test_a_folder_of_several_incidents_asks_which(
    diagnose: Oncall, hang: Path, healthy: Path
) -> None:
    left = diagnose(hang.parent)
    assert left.code == 2
    assert str(hang) in left.err
    assert str(healthy) in left.err


def test_as_it_stood_before_the_hang(diagnose: Oncall, hang: Path) -> None:
    before = diagnose(hang, "--at", "02:44:30")
    assert before.code == 3
    assert before.out.startswith("? Inconclusive: 4 of 4 ranks are in AllReduce 15")
    assert diagnose(hang, "--since", "1 min").code == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "use --hosts gpu[001-512]"),
        (("--job", "llm"), "use --hosts gpu[001-512]"),
        (("nowhere",), "nowhere: "),
        (
            ("HANG", "--at", "breakfast"),
            "--at breakfast: expected a time such as 2026-11-20T03:10:00",
        ),
        (("HANG", "--at", "2031-01-01T00:00"), "the evidence spans 2026-11-20T02:42:00"),
        (("HANG", "--since", "soon"), "`soon` is not a duration"),
        (("HANG", "--since", "-5 s"), "the duration must be positive"),
        (("HANG", "--save", "FOLDER"), "is a folder"),
        (("HANG", "--param", "hang_after"), "expected RULE.NAME=VALUE"),
        (("HANG", "--param", "hang.hang_aftr=3s"), "did you mean"),
        (("HANG", "--param", "hang.hang_after=3 GB"), "hang_after"),
        (("HANG", "--min-coverage", "7"), "--min-coverage"),
        (("HANG", "--format", "xml"), "--format"),
        (("HANG", "--memory", "3 s"), "--memory 3 s: expected a size, such as 1GB"),
        (("HANG", "--memory", "0 GB"), "--memory 0 GB: expected a size, such as 1GB"),
        (("HANG", "--job", "other"), "no evidence of job `other` here; it is of llm"),
        (("HANG", "--rules", "nowhere"), "nowhere"),
        (("HANG", "nowhere"), "only one saved incident"),
    ],
)
def test_what_cannot_be_is_said(
    diagnose: Oncall, hang: Path, arguments: tuple[str, ...], said: str
) -> None:
    folder = hang.parent / "folder.oncall"
    folder.mkdir()
    places = {"HANG": hang, "FOLDER": folder}
    left = diagnose(*(places.get(one, one) for one in arguments))
    assert left.code == 2
    assert left.out == ""
    assert said in left.err


@pytest.mark.parametrize("content", [b"", b"junk" * 100, b"\0" * 8 + b"DUCK" + b"\0" * 4000])
def test_a_damaged_incident(diagnose: Oncall, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.oncall"
    path.write_bytes(content)
    left = diagnose(path)
    assert (left.code, left.out) == (2, "")
    assert str(path) in left.err


def test_instants_are_utc_unless_they_say() -> None:
    last = START_NS + 400 * S
    assert parse_instant("02:42:00", last) == START_NS + S - 1
    assert parse_instant("2026-11-20T02:42:00Z", last) == START_NS + S - 1
    assert parse_instant("2026-11-20T03:42:00+01:00", last) == START_NS + S - 1
    assert parse_instant("02:42:00.25", last) == START_NS + S // 4


def testparse_overrides() -> None:
    assert parse_overrides(["a.b= 3 s", "c.d=x=y"]) == {"a.b": "3 s", "c.d": "x=y"}
    with pytest.raises(UsageError):
        parse_overrides(["a.b="])
