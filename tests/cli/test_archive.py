"""`oncall archive` and `oncall history` as their user meets them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ..command import Done, oncall

XID = (
    "[{day} 03:10:00 2026] NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, "
    "GPU has fallen off the bus.\n"
)
COMPONENT = "node02/0000:9b:00.0"


@pytest.fixture
def nights(tmp_path: Path) -> dict[str, Path]:
    """What the kernel of one node said at three nights."""
    found = {}
    for name, day in (("first", "Wed Sep 30"), ("second", "Thu Oct 29"), ("third", "Fri Nov 20")):
        found[name] = tmp_path / name / "node02.dmesg.txt"
        found[name].parent.mkdir()
        found[name].write_text(XID.format(day=day))
    return found


def test_from_incident_to_incident(
    nights: dict[str, Path], tmp_path: Path, configure: Callable[[str], Path]
) -> None:
    archive = tmp_path / "archive"
    saved = tmp_path / "saved"
    saved.mkdir()
    oncall("diagnose", nights["first"], "--save", saved / "first.oncall")
    document = oncall("diagnose", nights["second"], "--format", "json").stdout
    (saved / "second.json").write_text(document)

    added = oncall("archive", "add", saved, "--archive", archive)
    again = oncall("archive", "add", saved, "--archive", archive)

    assert (added.returncode, added.stdout.count("added, 1 finding")) == (0, 2)
    assert again.stdout.count("in the archive already") == 2
    found = json.loads(oncall("history", "--archive", archive, "--format", "json").stdout)
    assert [(one["name"], one["times"]) for one in found["by_component"]] == [(COMPONENT, 2)]

    incident = found["episodes"][1]["incidents"][0]
    noted = oncall("archive", "solved", incident, "reseated the riser", "--archive", archive)
    assert noted.returncode == 0

    configure(f'[archive]\nplace = "{archive}"\n')
    third = oncall(
        "diagnose", nights["third"], "--save", saved / "3.oncall", XDG_CONFIG_HOME=str(tmp_path)
    )
    said = " ".join(third.stdout.split())
    assert f"Seen before 2 times on {COMPONENT}, last 22 d before this; last fixed by: " in said
    assert "reseated the riser" in said
    # The saved incident says the same where there is no archive.
    replayed = json.loads(oncall("diagnose", saved / "3.oncall", "--format", "json").stdout)
    assert replayed["findings"][0]["seen_before"].startswith(f"2 times on {COMPONENT}")

    story = oncall("history", "node02", "--archive", archive)
    assert "fixed by: reseated the riser" in story.stdout
    assert "never blamed" in oncall("history", "node03", "--archive", archive).stdout
    sizes = oncall("archive", "verify", "--archive", archive).stdout
    assert "3 files sound, 0 damaged" in sizes
    assert oncall("archive", "compact", "--archive", archive).returncode == 0
    kept = oncall("archive", "expire", "--archive", archive, "--keep", "1d").stdout
    assert "deleted 3 files" in kept


def failed(done: Done, said: str) -> bool:
    return done.returncode == 2 and said in done.stderr


def test_bad_input_is_named_and_the_rest_is_added(
    nights: dict[str, Path], tmp_path: Path, configure: Callable[[str], Path]
) -> None:
    archive = tmp_path / "archive"
    good = tmp_path / "good.json"
    good.write_text(oncall("diagnose", nights["first"], "--format", "json").stdout)
    for name, content in (("cut.json", good.read_text()[:-99]), ("x.oncall", "x"), ("y.json", "7")):
        (tmp_path / name).write_text(content)
    os.mkfifo(tmp_path / "a.json")
    os.mkfifo(tmp_path / "b.oncall")

    done = oncall("archive", "add", tmp_path, "--archive", archive)

    assert (done.returncode, done.stdout.count("added")) == (2, 1)
    for said in (
        "cut.json: not JSON",
        "x.oncall: not an incident",
        "y.json: not a diagnosis",
        "a.json: a named pipe",
    ):
        assert said in done.stderr
    assert failed(oncall("archive", "add", good, XDG_CONFIG_HOME=str(tmp_path)), "no archive")
    assert failed(oncall("archive", "add", tmp_path / "none", "--archive", archive), "no such file")
    assert failed(oncall("history", "--archive", tmp_path / "none"), "no such folder")
    assert failed(oncall("history", "--archive", archive, "--engine", "spark://x"), "--engine")
    assert failed(
        oncall("archive", "solved", "feed", "x", "--archive", archive), "no incident feed"
    )
    configure('[archive]\nplaec = "x"\n')
    assert failed(oncall("history", XDG_CONFIG_HOME=str(tmp_path)), "unknown option `plaec`")


def test_an_archive_that_cannot_be_read_costs_no_diagnosis(
    nights: dict[str, Path], tmp_path: Path
) -> None:
    done = oncall("diagnose", nights["first"], "--archive", tmp_path / "none")

    assert done.returncode == 1
    assert "without the archive" in done.stderr and "Xid 79" in done.stdout


def test_a_half_written_file_is_left_out_and_named(nights: dict[str, Path], tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    good = tmp_path / "good.json"
    good.write_text(oncall("diagnose", nights["first"], "--format", "json").stdout)
    oncall("archive", "add", good, "--archive", archive)
    (file,) = archive.glob("**/*.parquet")
    file.with_name("cut.parquet").write_bytes(file.read_bytes()[:200])

    found = oncall("history", "--archive", archive)

    assert found.returncode == 0 and COMPONENT in found.stdout
    assert "left out, damaged or half-written" in found.stderr and "cut.parquet" in found.stderr
    verified = oncall("archive", "verify", "--set-aside", "--archive", archive)
    assert verified.returncode == 1 and "cut.parquet.damaged" in verified.stdout
    assert oncall("archive", "verify", "--archive", archive).returncode == 0
