"""Pack a tarball of `make tarball` as deb or rpm: `make deb rpm`.

    python packaging/packages.py deb|rpm dist/oncall-node-*.tar.gz

What goes where is packaging/package.toml. A deb is written by dpkg-deb, an rpm by rpmbuild; both as
any user, with files of root.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
_TARBALL = re.compile(
    r"oncall-node-(?P<version>.+)-python(?P<python>[\d.]+)-linux-(?P<machine>\w+)"
)
_DEB_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}

# The rings stay where they are: a job may still write them. So do evidence and configuration.
# DPKG_ROOT: dpkg installs into another root, whose services do not run here.
_INSTALLED = """\
root=${{DPKG_ROOT:-}}
if command -v systemd-sysusers >/dev/null; then
  systemd-sysusers --root="$root/" oncall.conf || :
fi
if command -v systemd-tmpfiles >/dev/null; then
  systemd-tmpfiles --root="$root/" --create oncall.conf || :
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
  systemctl try-restart {units} || :
fi
"""
_REMOVED = """\
if [ -z "${{DPKG_ROOT:-}}" ] && [ -d /run/systemd/system ]; then
  systemctl disable --now {units} || :
fi
"""


@dataclass(frozen=True)
class Package:
    """The description, and what a tarball's name says of it."""

    said: Mapping[str, Any]
    version: str
    python: str
    machine: str

    def script(self, text: str) -> str:
        return text.format(units=" ".join(self.said["units"]))

    def recommends(self, kind: str) -> str:
        return str(self.said["recommends"][kind].format(python=self.python))


def describe(tarball: Path) -> Package:
    """Raises SystemExit for a file that `make tarball` did not name."""
    match = _TARBALL.fullmatch(tarball.name.removesuffix(".tar.gz"))
    if match is None:
        sys.exit(f"{tarball}: not a tarball of `make tarball`")
    said = tomllib.loads((PROJECT / "packaging" / "package.toml").read_text())
    return Package(said, match["version"], match["python"], match["machine"])


def lay_out(package: Package, tarball: Path, root: Path) -> None:
    """All files below `root`, as they lie on a machine."""
    folder = root / package.said["folder"].lstrip("/")
    folder.parent.mkdir(parents=True)
    with tarfile.open(tarball) as archive:
        # Debian 12's Python 3.11.2 has no filters yet; the tarball is our own.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(folder.parent)
    (folder.parent / tarball.name.removesuffix(".tar.gz")).rename(folder)
    for source, target in package.said["files"].items():
        place = root / target.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(PROJECT / source, place)
        place.chmod(0o644)
    for link, target in package.said["links"].items():
        place = root / link.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)


def deb(package: Package, root: Path, into: Path) -> Path:
    """The deb. Raises CalledProcessError."""
    said, control = package.said, root / "DEBIAN"
    machine = _DEB_MACHINES[package.machine]
    size_kib = sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    control.mkdir()
    (control / "control").write_text(
        f"Package: {said['name']}\nVersion: {package.version}\nArchitecture: {machine}\n"
        f"Maintainer: {said['maintainer']}\nInstalled-Size: {size_kib}\n"
        f"Depends: libc6 (>= 2.28)\nRecommends: {package.recommends('deb')}\n"
        f"Section: admin\nPriority: optional\n"
        f"Description: {said['summary']}\n {said['description']}\n"
    )
    for name, text in (("postinst", _INSTALLED), ("prerm", _REMOVED)):
        # An upgrade stops nothing: what is installed then restarts it.
        guard = '[ "$1" = remove ] || exit 0\n' if name == "prerm" else ""
        (control / name).write_text(f"#!/bin/sh\n{guard}{package.script(text)}")
        (control / name).chmod(0o755)
    path = into / f"{said['name']}_{package.version}_{machine}.deb"
    _run("dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(root), str(path))
    return path


def rpm(package: Package, root: Path, into: Path) -> Path:
    """The rpm. Raises CalledProcessError."""
    said = package.said
    paths = [said["folder"], *said["files"].values(), *said["links"]]
    spec = (
        f"Name: {said['name']}\nVersion: {package.version}\nRelease: 1\n"
        f"Summary: {said['summary']}\nLicense: {said['license']}\n"
        # What the libraries bring is not for others, and what they need is glibc alone.
        "AutoReqProv: no\nRequires: glibc >= 2.28\n"
        f"Recommends: {package.recommends('rpm')}\n"
        "%define __os_install_post %{nil}\n%define _build_id_links none\n"
        f"%description\n{said['description']}\n"
        f"%post\n{package.script(_INSTALLED)}"
        f'%preun\n[ "$1" = 0 ] || exit 0\n{package.script(_REMOVED)}'
        "%files\n%defattr(-,root,root)\n" + "".join(f"{path}\n" for path in paths)
    )
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "oncall.spec").write_text(spec)
        _run(
            *("rpmbuild", "--quiet", "-bb", f"--target={package.machine}"),
            *("--define", f"_topdir {work}", "--define", f"_rpmdir {into}"),
            *("--define", "_rpmfilename %{name}-%{version}.%{arch}.rpm"),
            *("--buildroot", str(root), f"{work}/oncall.spec"),
        )
    return into / f"{said['name']}-{package.version}.{package.machine}.rpm"


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        sys.exit(f"{command[0]} not found: apt-get install dpkg, or rpm")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    """Print each package's path and size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("deb", "rpm"))
    parser.add_argument("tarball", type=Path)
    parser.add_argument("--into", type=Path, default=PROJECT / "dist")
    options = parser.parse_args()
    os.umask(0o022)  # what is installed is everybody's to read
    package = describe(options.tarball)
    with tempfile.TemporaryDirectory() as work:
        root = Path(work, "root")
        root.mkdir(mode=0o755)
        lay_out(package, options.tarball, root)
        path = (deb if options.kind == "deb" else rpm)(package, root, options.into.absolute())
    print(f"{path}: {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
