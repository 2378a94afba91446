"""Build the tarball of `make tarball`: what a node runs, unpacked and started, never installed.

    python packaging/tarball.py [--architecture x86_64] [--python 3.11]

It takes the wheel of that architecture from dist/ and its libraries from the package index, and
leaves out what only a console needs: with `bin/oncall` one collects, and diagnoses files.
"""

from __future__ import annotations

import argparse
import compileall
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
# What `oncall node`, `collect`, `hooks`, `watch` and `diagnose` import; textual serves the console.
LIBRARIES_OF_A_NODE = (
    *("duckdb", "msgspec", "numpy", "nvidia-ml-py", "ruamel.yaml", "typer"),
    *("asyncssh", "ClusterShell"),  # of a gateway and of a watch, which ask other nodes
    "prometheus-client",  # of a watch
)
# glibc 2.28 is the oldest that DuckDB's and numpy's wheels run on.
PLATFORMS = (
    "manylinux_2_28",
    "manylinux_2_27",
    "manylinux_2_26",
    "manylinux_2_17",
    "manylinux2014",
)
LEFT_OUT = (
    "oncall/_native/standin",
    *("numpy/**/tests", "numpy/f2py", "numpy/_core/include", "numpy/_core/lib", "**/*.pyi"),
    *("bin", "include", "_duckdb-stubs", "adbc_driver_duckdb", "example.py"),
)
START = "from oncall.cli.start import run\n\nrun()\n"


def build(architecture: str, python: str) -> Path:
    """The tarball's path. Raises CalledProcessError where pip finds no wheel of a library."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    name = f"oncall-node-{version}-python{python}-linux-{architecture}"
    folder = PROJECT / "build" / "tarball" / name
    shutil.rmtree(folder, ignore_errors=True)
    library = folder / "lib"
    _install_libraries(library, architecture, python)
    wheels = PROJECT.glob(f"dist/oncall_console-{version}-*_{architecture}.whl")
    wheel = next(wheels, None) or sys.exit(
        f"no wheel for {architecture} in dist/: run `make wheels`"
    )
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(library)
    _leave_out(library)
    (library / "__main__.py").write_text(START)
    if python == f"{sys.version_info.major}.{sys.version_info.minor}":
        # A node asks over SSH often, from a file system that may be read-only.
        compileall.compile_dir(library, quiet=1, stripdir=str(library))
    program = folder / "bin" / "oncall"
    program.parent.mkdir()
    program.write_text(
        (PROJECT / "packaging" / "oncall.sh").read_text().replace("@PYTHON@", python)
    )
    program.chmod(0o755)
    shutil.copy(PROJECT / "LICENSE", folder)
    tarball = PROJECT / "dist" / f"{name}.tar.gz"
    with tarfile.open(tarball, "w:gz") as archive:
        archive.add(folder, name, filter=_owned_by_root)
    return tarball


def _install_libraries(library: Path, architecture: str, python: str) -> None:
    platforms = [f"--platform={platform}_{architecture}" for platform in PLATFORMS]
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--target", str(library), "--only-binary=:all:", "--no-compile"),
            *(f"--python-version={python}", *platforms, *_requirements()),
        ],
        check=True,
    )


def _requirements() -> list[str]:
    """The libraries of a node, in the versions that oncall works with."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    wanted = {
        re.split(r"[<>=!~;\s]", each, maxsplit=1)[0]: each for each in project["dependencies"]
    }
    return [wanted[name] for name in LIBRARIES_OF_A_NODE]


def _leave_out(library: Path) -> None:
    for pattern in LEFT_OUT:
        for path in [*library.glob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    return entry


def main() -> None:
    """Print the tarball's path and its sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--architecture", choices=("x86_64", "aarch64"), default="x86_64")
    parser.add_argument("--python", default="3.11", help="the nodes' Python, such as 3.12")
    options = parser.parse_args()
    tarball = build(options.architecture, options.python)
    with tarfile.open(tarball) as archive:
        unpacked_bytes = sum(entry.size for entry in archive.getmembers())
    print(
        f"{tarball}: {tarball.stat().st_size / 1e6:.0f} MB, {unpacked_bytes / 1e6:.0f} MB unpacked"
    )


if __name__ == "__main__":
    main()
