"""The deb and the rpm: built, installed into a folder and removed by their own tools."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
NAME = "oncall-node-0.2.0-python3.11-linux-x86_64"
ON_A_MACHINE = {
    "/opt/oncall/bin/oncall",
    "/opt/oncall/lib/__main__.py",
    "/usr/bin/oncall",
    "/usr/lib/systemd/system/oncall-collect.service",
    "/usr/lib/systemd/system/oncall-watch@.service",
    "/usr/lib/tmpfiles.d/oncall.conf",
    "/usr/lib/sysusers.d/oncall.conf",
}


@pytest.fixture
def tarball(tmp_path: Path) -> Path:
    """As `make tarball` writes it, but of a program that only says its name."""
    path = tmp_path / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text, mode in (
            ("bin/oncall", '#!/bin/sh\nexec echo "oncall of $(readlink -f "$0")"\n', 0o755),
            ("lib/__main__.py", "", 0o644),
        ):
            entry = tarfile.TarInfo(f"{NAME}/{name}")
            entry.size, entry.mode = len(text), mode
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def built(kind: str, tarball: Path) -> Path:
    made = subprocess.run(
        (
            *(sys.executable, PROJECT / "packaging" / "packages.py", kind, tarball),
            *("--into", tarball.parent),
        ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return Path(made.stdout.rpartition(":")[0])


def run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def need(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"there is no {program} here (apt-get install dpkg, rpm)")
    if os.geteuid() != 0:
        pytest.skip("only root can install a package, if into a folder")


def files_below(root: Path) -> set[str]:
    found = (path for path in root.rglob("*") if path.is_symlink() or path.is_file())
    return {f"/{path.relative_to(root)}" for path in found}


def test_the_deb_is_installed_and_removed(tarball: Path, tmp_path: Path) -> None:
    need("dpkg-deb", "dpkg")
    package = built("deb", tarball)
    assert package.name == "oncall-node_0.2.0_amd64.deb"
    shown = run("dpkg-deb", "--info", package)
    assert "Recommends: python3.11, openssh-client" in shown
    assert "root/root" in run("dpkg-deb", "--contents", package)
    root = tmp_path / "root"
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    dpkg = (*("dpkg", f"--root={root}"), "--force-script-chrootless", "--force-depends")
    run(*dpkg, "--install", package)
    assert files_below(root) >= ON_A_MACHINE
    assert run(root / "opt/oncall/bin/oncall").startswith("oncall of ")
    assert (root / "usr/bin/oncall").readlink() == Path("/opt/oncall/bin/oncall")
    run(*dpkg, "--remove", "oncall-node")
    assert not files_below(root) & ON_A_MACHINE


def test_the_rpm_is_installed_and_removed(tarball: Path, tmp_path: Path) -> None:
    need("rpmbuild", "rpm")
    package = built("rpm", tarball)
    assert package.name == "oncall-node-0.2.0.x86_64.rpm"
    assert set(run("rpm", "-qpl", package).split()) >= ON_A_MACHINE - {
        "/opt/oncall/bin/oncall",
        "/opt/oncall/lib/__main__.py",
    }
    assert "python(abi) = 3.11" in run("rpm", "-qp", "--recommends", package)
    root = tmp_path / "root"
    root.mkdir()
    # Its requirements are of another system's database; scripts would run in a root without sh.
    rpm = ("rpm", f"--root={root}", "--nodeps", "--noscripts")
    run(*rpm, "--install", package)
    assert files_below(root) >= ON_A_MACHINE
    run(*rpm, "--erase", "oncall-node")
    assert not files_below(root) & ON_A_MACHINE


def test_units_start_what_the_package_installs() -> None:
    for name in ("oncall-collect.service", "oncall-watch@.service"):
        unit = (PROJECT / "packaging" / "systemd" / name).read_text()
        start = re.search(r"^ExecStart=(\S+)", unit, re.MULTILINE)
        assert start and start[1] in ON_A_MACHINE
        if user := re.search(r"^User=(\S+)", unit, re.MULTILINE):
            made = (PROJECT / "packaging" / "sysusers.d" / "oncall.conf").read_text()
            assert f"\nu {user[1]} " in made
