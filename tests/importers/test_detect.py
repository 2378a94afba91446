"""What is read of the paths given, as which job, and what is refused."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest
from tests.importers.ras.answers import AHEAD, HEAD
from tests.importers.ras.answers import WORLD as RAS_WORLD

from oncall.core.errors import BadInput
from oncall.evidence.incident import Incident
from oncall.importers import detect

WORLD = {"0": ("default_pg", range(4))}
RAS = {
    "nccl_version": "2.28.7",
    "timestamp": "2026-01-01 00:00:00",
    "communicators_count": 0,
    "communicators": [],
}


def load(*paths, job=None):
    with Incident.empty() as incident:
        detect.load([Path(path) for path in paths], incident, job)
        return incident.con.execute(
            "SELECT job, kind, path, problem FROM recordings ORDER BY ALL"
        ).fetchall()


def write_job(fr, folder, ranks=range(2), start=0, suffix="", entries=2, world=WORLD):
    for rank in ranks:
        calls = [fr.entry(start + n, n + 1) for n in range(entries)]
        fr.write(folder, rank, fr.dump(calls, world), suffix)


def names(found):
    return [
        (job, Path(path).relative_to(Path(path).parents[1]).as_posix()) for job, _, path, _ in found
    ]


def test_the_job_is_called_as_reported_else_after_the_folder_given(fr, tmp_path, monkeypatch):
    write_job(fr, tmp_path / "llama" / "dumps")
    assert {job for job, *_ in load(tmp_path / "llama")} == {"llama"}
    assert {job for job, *_ in load(tmp_path / "llama", job="405b")} == {"405b"}
    files = sorted((tmp_path / "llama" / "dumps").iterdir())
    assert {job for job, *_ in load(*files)} == {"dumps"}
    monkeypatch.chdir(tmp_path / "llama")
    assert {job for job, *_ in load(".")} == {"llama"}


def test_folders_of_two_jobs_are_distinguished(fr, tmp_path):
    write_job(fr, tmp_path / "runs" / "monday" / "pickle")
    write_job(fr, tmp_path / "runs" / "monday" / "json", suffix=".json")
    write_job(fr, tmp_path / "runs" / "tuesday", start=1000)
    with pytest.raises(BadInput, match="of 2 jobs; choose one with --job: monday, tuesday"):
        load(tmp_path / "runs")
    with pytest.raises(BadInput, match="no job named friday; choose one with --job: monday, tue"):
        load(tmp_path / "runs", job="friday")
    assert {job for job, *_ in load(tmp_path / "runs", job="tuesday")} == {"tuesday"}
    assert names(load(tmp_path / "runs", job="monday")) == [
        ("monday", "pickle/fr_trace_rank_0"),
        ("monday", "pickle/fr_trace_rank_1"),
    ]


def test_jobs_of_other_sizes_or_days_are_no_parts_of_one(fr, tmp_path):
    write_job(fr, tmp_path / "a", ranks=[0, 1])
    write_job(fr, tmp_path / "b", ranks=[2, 3], start=10_000_000)
    write_job(fr, tmp_path / "c", ranks=[4, 5], world={"0": ("default_pg", range(8))})
    with pytest.raises(BadInput, match="of 3 jobs; choose one with --job: a, b, c"):
        load(tmp_path)


def test_what_people_keep_beside_recordings_is_left_alone(fr, tmp_path):
    write_job(fr, tmp_path)
    for name in ("README", "notes.md", "train.py", "job.yaml", "old.oncall"):
        (tmp_path / name).write_text("fault injected at rank 2")
    (tmp_path / "run.json").write_text('{"world": 4}')
    (tmp_path / ".hidden").write_bytes(b"\x80\x02}(")
    (tmp_path / ".cache").mkdir()
    write_job(fr, tmp_path / ".cache")
    assert len(load(tmp_path)) == 2


def test_the_unknown_beside_recordings_is_stated(fr, tmp_path):
    write_job(fr, tmp_path)
    (tmp_path / "core.4711").write_bytes(b"\x7fELF")
    (tmp_path / "fr_trace_rank_2").write_bytes(b"")
    (tmp_path / "fr_trace_rank_3").write_bytes(b"\x00" * 64)
    problems = {Path(path).name: (kind, problem) for _, kind, path, problem in load(tmp_path)}
    assert problems["core.4711"] == (
        None,
        "a program or a core dump (ELF), not a recording",
    )
    assert problems["fr_trace_rank_2"] == ("flight_recorder", "empty file")
    assert problems["fr_trace_rank_3"] == ("flight_recorder", "neither a pickle nor JSON")
    assert problems["fr_trace_rank_0"] == ("flight_recorder", None)


def test_a_text_that_was_not_read_is_stated_also_in_a_numbered_folder_of_its_own(tmp_path):
    for rank in range(3):
        (tmp_path / str(rank)).mkdir()
        (tmp_path / str(rank) / "stderr.log").write_text("[rank1]: KeyError: 7" if rank else "")
    (tmp_path / "1" / "notes.txt").write_text("hello")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("hello")
    problems = {"/".join(Path(p).parts[-2:]): said for _, _, p, said in load(tmp_path) if said}
    assert problems == {
        "0/stderr.log": "empty file",
        "1/notes.txt": "not a recording that oncall knows",
    }


@pytest.mark.parametrize("name", ["gpu001.log", "gpu001.dmesg"])
def test_an_empty_file_of_a_series_is_lost_evidence(tmp_path, name):
    lines = {"log": "[rank1]: KeyError: 7", "dmesg": "[ 1.0] NVRM: Xid (PCI:0000:3b:00): 79, x"}
    (tmp_path / name).write_text("")
    (tmp_path / name.replace("001", "002")).write_text(lines[name.partition(".")[2]])
    assert [said for *_, said in load(tmp_path) if said] == ["empty file"]


def test_pipes_beside_dumps_are_not_opened(fr, tmp_path):
    write_job(fr, tmp_path)
    os.mkfifo(tmp_path / "fr_trace_rank_0.pipe")
    assert len(load(tmp_path)) == 2
    with pytest.raises(BadInput, match="neither a file nor a folder"):
        load(tmp_path / "fr_trace_rank_0.pipe")


def test_odd_file_names(fr, tmp_path):
    write_job(fr, tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff_rank_2")).write_bytes(b"junk")
    assert len(load(tmp_path)) == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        (b"hello", "not a recording that oncall knows; oncall reads PyTorch profiler traces"),
        (b"", "empty file$"),
        (b"%PDF-1.7", "a PDF, not a recording$"),
        (b" <!DOCTYPE html><p>", "an HTML page: save the log itself as text$"),
        (b"train.py".ljust(257, b"\0") + b"ustar", "a tar archive: oncall unpacks it if"),
        (b"\x80\x04cos\nsystem\n", "a pickle, but not one of the Flight Recorder"),
        (b"\x80\x02}(X\x09\0\0\0pg_config", "truncated or damaged pickle"),
    ],
)
def test_a_file_given_by_name_must_be_evidence(content, problem, tmp_path):
    path = tmp_path / "fr_trace_rank_0"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=problem) as error:
        load(path)
    assert error.value.place == str(path)


def test_what_is_no_evidence_among_files_given_is_listed_and_skipped(fr, tmp_path):
    write_job(fr, tmp_path)
    (tmp_path / "README.md").write_text("dumps of tonight")
    (tmp_path / "trace.json.zst").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(20))
    problems = {Path(p).name: said for *_, p, said in load(*sorted(tmp_path.iterdir())) if said}
    assert problems == {
        "README.md": "not a recording that oncall knows",
        "trace.json.zst": "packed by zstd, which oncall does not unpack: run `zstd -d` on it first",
    }


def test_gzipped_files_of_any_kind_are_read(fr, tmp_path):
    write_job(fr, tmp_path / "plain")
    (tmp_path / "plain" / "ras.json").write_text(json.dumps(RAS))
    packed = tmp_path / "packed"
    packed.mkdir()
    for path in (tmp_path / "plain").iterdir():
        (packed / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
    kinds = [kind for _, kind, *_ in load(packed)]
    assert kinds == ["flight_recorder", "flight_recorder", "nccl_ras"]


def test_of_attempts_in_folders_of_their_own_the_last_counts(fr, tmp_path):
    for attempt in (2, 10):
        write_job(fr, tmp_path / "llama" / f"attempt_{attempt}", start=1000 * attempt)
    found = load(tmp_path / "llama")
    assert [job for job, *_ in found] == ["llama"] * 3
    assert [(kind, Path(path).name) for _, kind, path, _ in found] == [
        ("flight_recorder", "fr_trace_rank_0"),
        ("flight_recorder", "fr_trace_rank_1"),
        (None, "attempt_2"),
    ]
    assert {job for job, *_ in load(tmp_path / "llama", job="attempt_2")} == {"attempt_2"}


def test_a_damaged_file_given_among_its_series_is_a_stated_gap(fr, tmp_path):
    write_job(fr, tmp_path)
    (tmp_path / "fr_trace_rank_1").write_bytes(b"junk")
    found = load(*sorted(tmp_path.iterdir()))
    assert [problem for *_, problem in found] == [None, "neither a pickle nor JSON"]


def test_folders_without_recordings(tmp_path):
    with pytest.raises(
        BadInput, match=r"no recording here \(no file at all\); oncall reads .*NCCL RAS.*Megatrace"
    ):
        load(tmp_path)
    (tmp_path / "README.md").write_text("empty")
    with pytest.raises(BadInput, match=r"here \(README.md: not a recording that oncall knows\);"):
        load(tmp_path)
    for number in range(2500):
        (tmp_path / f"core.{number}").touch()
    with pytest.raises(BadInput, match=r"core.0: empty file, .* and 2,498 more\);"):
        load(tmp_path)


def test_nothing_readable_is_no_diagnosis(fr, tmp_path):
    write_job(fr, tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[:150])
    with pytest.raises(BadInput, match=r"rank_0: truncated.*\(with 1 more, none readable\)"):
        load(tmp_path)


def test_notes_are_read_as_what_is_pasted_in_them_if_given_by_name(tmp_path):
    notes = tmp_path / "issue.md"
    line = "[rank3]: RuntimeError: no such file"
    notes.write_text(f"# It fails\n\n```\n{line}\n```\n")
    assert [(kind, problem) for _, kind, _, problem in load(notes)] == [("log", None)]
    with pytest.raises(BadInput):
        load(tmp_path)


def test_warnings_of_torchrun_alone_are_a_log(tmp_path):
    log = tmp_path / "torchrun.log"
    log.write_text("W0411 20:12:03.118000 61011 torch/distributed/run.py:792] ****\n")
    assert [(kind, problem) for _, kind, _, problem in load(log)] == [("log", None)]


def test_what_only_holds_words_of_logs_is_none(tmp_path):
    """Makefiles and sources do; a log may begin with such lines as well."""
    rule = "all:\n\t$(CC) -DError=1 main.c || echo Killed\n"
    for name in ("Makefile", "build.make", "CMakeLists.txt", "main.py"):
        (tmp_path / name).write_text(rule)
        assert detect.what_it_is(tmp_path / name) is None
    (tmp_path / "job.log").write_text(rule)
    assert "job logs" in detect.what_it_is(tmp_path / "job.log")
    (tmp_path / "stdout").write_text(rule + "[rank3]: RuntimeError: no such file\n")
    assert "job logs" in detect.what_it_is(tmp_path / "stdout")


KERNEL = "\n".join(
    f"[{at}.5] NVRM: Xid (PCI:0000:{bus}:00): 79, pid=7, GPU has fallen off the bus."
    for at, bus in ((100, "dc"), (101, "97"))
)
LOG = (Path(__file__).parents[2] / "fixtures" / "logs" / "slurm-4711.out").read_text()


@pytest.mark.parametrize(
    "text", [KERNEL, LOG, HEAD + RAS_WORLD + AHEAD], ids=["kernel", "log", "ras"]
)
def test_colours_inside_of_words_change_nothing(tmp_path: Path, text: str) -> None:
    """As `grep --color` and highlighters leave them."""
    coloured = "".join(one + "\x1b[01;31m\x1b[K" * (n % 5 == 0) for n, one in enumerate(text))
    read = []
    for written in (text, coloured):
        (tmp_path / "job.txt").write_text(written)
        os.utime(tmp_path / "job.txt", (1_773_000_000, 1_773_000_000))
        with Incident.empty() as incident:
            detect.load([tmp_path / "job.txt"], incident)
            tables = [name for (name,) in incident.con.execute("SHOW TABLES").fetchall()]
            read.append(
                {
                    name: incident.con.execute(f"FROM {name} ORDER BY ALL").fetchall()
                    for name in tables
                }
            )
    assert read[0] == read[1] and any(read[0].values())
