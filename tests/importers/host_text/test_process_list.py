"""Lists of processes: who sleeps in the calls of a file system."""

from __future__ import annotations

from pathlib import Path

from tests.importers.host_text.host_files import reported

from oncall.evidence.incident import Incident

PS = """  PID STAT WCHAN                            CMD
 4101 Dl   rpc_wait_bit_killable            python train.py --local-rank 0
 4102 Dl   nfs_wait_on_request              python train.py --local-rank 1
 4103 Rl   -                                python train.py --local-rank 2
   98 I    worker_thread                    [kworker/0:1]
  410 D    drm_atomic_helper_wait           Xorg
"""


def test_processes_that_sleep_in_one_file_system_are_one_event(
    tmp_path: Path, incident: Incident
) -> None:
    columns = "node, source, code, device, text, line"
    assert reported(incident, tmp_path / "ps_gpu7.txt", PS, columns, "host_events") == [
        (
            *("gpu7", "ps", "storage_waits", "NFS"),
            "2 processes (4101, 4102) in state D, in rpc_wait_bit_killable, nfs_wait_on_request",
            2,
        )
    ]
