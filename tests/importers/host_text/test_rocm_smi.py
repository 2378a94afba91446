"""What `rocm-smi` prints: a row is a GPU, its columns known by their units."""

from __future__ import annotations

from pathlib import Path

from tests.importers.host_text.host_files import reported

from oncall.evidence.incident import Incident

NEW = """
========================= ROCm System Management Interface =========================
=================================== Concise Info ===================================
Device  Node  IDs  Temp  Power  Parts  SCLK  MCLK  Fan  PwrCap  VRAM%  GPU%
  (DID, GUID)  (Junction)  (Socket)  (Mem, Compute, ID)
====================================================================================
0  4  0x74b5,  65402  41.0°C  139.0W  NPS1, SPX, 0  132Mhz  900Mhz  0%  750.0W  12%  3%
1  5  0x74b5,  27175  37.0°C  136.0W  NPS1, SPX, 0  131Mhz  900Mhz  0%  750.0W  0%  0%
====================================================================================
=============================== End of ROCm SMI Log ================================
"""
OLD = """======================= ROCm System Management Interface =======================
================================= Concise Info =================================
GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan  PwrCap  VRAM%  GPU%
0    35.0c           42.0W   800Mhz   1600Mhz  0%   auto  560.0W    9%   95%
================================================================================
"""
COLUMNS = "node, gpu, temp_c, power_w, power_limit_w, sm_clock_mhz, utilisation"


def test_a_row_is_a_gpu(tmp_path: Path, incident: Incident) -> None:
    assert reported(incident, tmp_path / "rocm-smi-mi7.txt", NEW, COLUMNS, "gpus") == [
        ("mi7", 0, 41.0, 139.0, 750.0, 132, 0.03),
        ("mi7", 1, 37.0, 136.0, 750.0, 131, 0.0),
    ]


def test_of_older_versions_too(tmp_path: Path, incident: Incident) -> None:
    assert reported(incident, tmp_path / "rocm-smi.txt", OLD, COLUMNS, "gpus") == [
        (None, 0, 35.0, 42.0, 560.0, 800, 0.95)
    ]
