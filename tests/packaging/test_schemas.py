"""The manifests, and what the chart makes, are what Kubernetes' API takes: by its schemas.

They come with `kubernetes-validate`, which `make chart` installs. A schema knows fields and types;
what an API server checks beyond them, as that a volume is there, it does not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.packaging.test_helm import PACKAGING, WATCHES, rendered

# The oldest that clusters may still run, and the newest of which there are schemas (an argument
# left out).
VERSIONS = (("--kubernetes-version", "1.27"), ())


@pytest.fixture
def validate() -> str:
    program = shutil.which("kubernetes-validate")
    if program is None:
        pytest.skip("there is no kubernetes-validate here: make chart")
    return program


def problems(validate: str, path: Path) -> list[str]:
    found = []
    for version in VERSIONS:
        done = subprocess.run(
            [validate, "--strict", *version, path], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            found.append(done.stdout + done.stderr)
    return found


@pytest.mark.parametrize("name", ["collector.yaml", "oncall-watch.yaml"])
def test_a_manifest_fits_the_schemas(name: str, validate: str) -> None:
    assert problems(validate, PACKAGING / "kubernetes" / name) == []


@pytest.mark.parametrize(
    "values",
    [{}, {"watches": WATCHES}, {"collector": {"runtimeClassName": "nvidia", "tolerations": []}}],
)
def test_what_the_chart_makes_fits_the_schemas(
    values: dict[str, Any], validate: str, tmp_path: Path
) -> None:
    made = tmp_path / "made.yaml"
    made.write_text("---\n".join(json.dumps(one) + "\n" for one in rendered(tmp_path, values)))
    assert problems(validate, made) == []


def test_a_field_that_there_is_not_is_found(validate: str, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    text = (PACKAGING / "kubernetes" / "collector.yaml").read_text()
    wrong.write_text(text.replace("hostPID:", "hostPid:"))
    assert len(problems(validate, wrong)) == len(VERSIONS)
