"""Which processes of a node are ranks, by what their launchers set."""

from __future__ import annotations

from pathlib import Path

from oncall.node.processes.training_processes import (
    one_process,
    settings_of,
    training_processes,
)


def process(proc: Path, pid: int, parent: int, *, python: bool = True, **variables: str) -> None:
    folder = proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"/usr/bin/python3\0train.py\0" if python else b"/bin/bash\0")
    (folder / "exe").symlink_to("/usr/bin/python3.11" if python else "/bin/bash")
    (folder / "stat").write_text(f"{pid} (py) train) S {parent} 1 1")
    pairs = "".join(f"{name}={value}\0" for name, value in variables.items())
    (folder / "environ").write_bytes(pairs.encode())


def ranks(proc: Path) -> list[tuple[int, str, int | None]]:
    return [(one.pid, one.job, one.rank) for one in training_processes(None, proc)]


def test_workers_of_torchrun_and_not_their_children(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, SLURM_PROCID="0", SLURM_JOB_ID="77")  # torchrun itself
    process(tmp_path, 11, 10, SLURM_PROCID="0", SLURM_JOB_ID="77", RANK="0", LOCAL_RANK="0")
    process(tmp_path, 12, 10, SLURM_PROCID="0", SLURM_JOB_ID="77", RANK="1", LOCAL_RANK="1")
    process(tmp_path, 13, 12, SLURM_PROCID="0", SLURM_JOB_ID="77", RANK="1", LOCAL_RANK="1")
    assert ranks(tmp_path) == [(11, "slurm-77", 0), (12, "slurm-77", 1)]


def test_a_task_of_srun_below_a_shell(tmp_path: Path) -> None:
    process(tmp_path, 20, 1, python=False, SLURM_PROCID="5", ONCALL_JOB="llama")
    process(tmp_path, 21, 20, SLURM_PROCID="5", ONCALL_JOB="llama")
    process(tmp_path, 22, 21, SLURM_PROCID="5", ONCALL_JOB="llama")
    assert ranks(tmp_path) == [(21, "llama", 5)]


def test_processes_without_a_rank_are_passed_over(tmp_path: Path) -> None:
    process(tmp_path, 30, 1, PATH="/bin")
    process(tmp_path, 31, 1, RANK="many")
    assert ranks(tmp_path) == []


def test_secrets_stay_where_they_are(tmp_path: Path) -> None:
    process(tmp_path, 40, 1, RANK="0", HF_TOKEN="hf_secret", NCCL_DEBUG="INFO", AWS_SECRET="x")
    (found,) = training_processes(None, tmp_path)
    assert found.settings == {"NCCL_DEBUG": "INFO"}
    assert settings_of({"WANDB_API_KEY": "x", "TORCH_FR_BUFFER_SIZE": "9"}) == {
        "TORCH_FR_BUFFER_SIZE": "9"
    }


def test_what_may_not_be_read_is_unknown(tmp_path: Path) -> None:
    process(tmp_path, 50, 1, RANK="0")
    (tmp_path / "50" / "environ").unlink()
    found = one_process(50, tmp_path)
    assert found is not None
    assert found.settings is None
