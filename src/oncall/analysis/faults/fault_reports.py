"""All that logs and hosts report, as one stream: what rulebooks/faults.yaml has a row for.

A row is something that a line, a state or a snapshot says; `code` is its kind. What lines state is
about a start of the job, what hosts report about a device.
"""

from __future__ import annotations

from oncall.analysis.faults.bandwidth_tests import bandwidths
from oncall.analysis.faults.reported_states import levels
from oncall.analysis.faults.step_times import nan_losses, slow_timers
from oncall.evidence import Param, relation

# A cause that lines state is its own code; not so how the job was ended, nor a start of the job
# that a later one outlived.
_CAUSES = r"""
    SELECT *, CASE WHEN outlived THEN 'earlier_start'
            WHEN cause = 'terminated' AND reason IN ('time_limit', 'preempted', 'evicted')
                OR cause = 'version' AND reason = 'driver' THEN reason ELSE cause END AS code,
        regexp_extract(path, '(\d+/std\w+\.log|[^/]+)$') || ':' || line AS place,
        nullif(greatest(least, waiting), waiting) AS most_known,
        nullif(regexp_extract(path, 'slurm-(\d+)', 1), '') AS slurm_job
    FROM log_causes"""
# What hosts report: by the kind of device, and by how grave its gravest code is.
_DEVICES = """
    SELECT * EXCLUDE (code, is_unnamed, weight, nvlink), suspect AS about, code AS event,
        if(part = 'host', NOT is_known, is_unnamed) AS is_unnamed,
        at_ns IS NULL AND part <> 'host' AS is_undated,
        CASE part
            WHEN 'gpu' THEN CASE
                WHEN event IN ('gpu_ecc', 'ecc_grew', 'pages_pending') THEN 'gpu_ecc'
                WHEN event = 'driver_mismatch' THEN 'gpu_driver'
                WHEN event IN ('gpu_throttled', 'host_throttled') THEN 'gpu_throttled'
                WHEN event IN ('gpu_capped', 'amd_gpu_capped') THEN 'gpu_capped'
                WHEN weight = 'warning' AND NOT fatal THEN 'nvlink_error'
                ELSE 'gpu_' || weight END
            WHEN 'nic' THEN CASE
                WHEN event IN ('port_slow', 'link_errors_grew', 'timeouts_grew', 'storms_grew')
                    THEN 'link_impaired'
                WHEN event NOT IN ('link_down', 'link_downs_grew', 'port_down', 'port_init',
                    'cable_unplugged') THEN 'machine'
                WHEN is_up OR event = 'link_downs_grew' THEN 'link_flapped'
                ELSE 'link_lost' END
            WHEN 'host' THEN if(weight = 'fault', 'node_down', 'node_drained')
            WHEN 'process' THEN if(event IN ('oom', 'segfault'), event, 'stalled')
            WHEN 'storage' THEN if(event = 'storage_waits' AND phase <> '', 'long_phase', 'stalled')
            ELSE if(part IN ('fabric', 'kernel', 'limit'), part, 'machine') END AS code
    FROM reported_faults LEFT JOIN (
        SELECT job, phase || ' (' || split_part(phase_path, '/', -1) || ':' || phase_line || ')'
            AS phase
        FROM log_progress ANTI JOIN log_causes USING (job)) USING (job)
    WHERE NOT (is_old OR is_outlived OR is_rare OR is_elsewhere)"""
_STREAM = f"""
    WITH causes AS ({_CAUSES}),
    stopped AS (FROM log_progress ANTI JOIN causes USING (job) WHERE stopped),
    {nan_losses()}, {slow_timers()}, {bandwidths()}, {levels()},
    logged AS (
        FROM causes
        UNION ALL BY NAME SELECT *, 'rank ' || rank AS about,
            'slow_' || if(timer = 'batch-generator', 'data', 'rank') AS code FROM slow_timers
        UNION ALL BY NAME SELECT *, 'nan_loss' AS code FROM nan_losses
        UNION ALL BY NAME FROM bandwidths
        -- On one host the network is not used.
        UNION ALL BY NAME SELECT *, problem AS about,
            if(problem = 'wrong_interface', 'interface_used', problem) AS code,
            split_part(path, '/', -1) || ':' || line AS place
        FROM network_setup WHERE problem = 'p2p_disabled' OR nodes IS NULL OR nodes > 1
        UNION ALL BY NAME SELECT *, 1 AS attempt, 'no_progress' AS code FROM stopped
        UNION ALL BY NAME SELECT *, 'slow_iterations' AS code FROM (
            FROM slow_steps ANTI JOIN causes USING (job) ANTI JOIN stopped USING (job)
            QUALIFY row_number() OVER (PARTITION BY job, attempt ORDER BY steps DESC) = 1)),
    reports AS (
        SELECT *, 'log' AS source FROM logged
        UNION ALL BY NAME SELECT *, 'host' AS source FROM ({_DEVICES})
        UNION ALL BY NAME SELECT *, 'snapshot' AS source FROM levels)"""


@relation(
    "fault_reports",
    reads=["log_events|logged_steps|watchdog_reports|host_events|gpus|nics"],
    optional=["log_causes", "reported_faults"],
    columns=[
        "job attempt",
        ("about", "VARCHAR", "", "of a host: the device, in words; else the code, or the rank"),
        ("source", "VARCHAR", "", "log; host: its kernel and tools; snapshot: no fault by itself"),
        ("code", "VARCHAR", "", "its kind: a row of the table in rulebooks/faults.yaml"),
        "reason rank node",
        ("gpu", "VARCHAR", "", "PCI address of a GPU, else its index"),
        "nic link peer_host number at_ns until_ns place text",
        ("call", "VARCHAR", "", "the collective that ranks wait in, with its number"),
        "seq waiting size",
        ("crowd", "VARCHAR", "", "the ranks that wait, of how many, in words"),
        ("unseen", "VARCHAR", "", "the ranks without text, of how many, in words"),
        "timeout_ns waited_ns",
        ("consequences", "VARCHAR", "", "how many later lines only follow from it, a sentence"),
        ("slurm_job", "VARCHAR", "", "Slurm's number of the job, by the log's name"),
        ("iteration", "BIGINT", "", "the first of the losses, or of the slow iterations"),
        "last_iteration",
        ("last_finite", "BIGINT", "", "the last iteration whose loss is a number"),
        ("steps", "BIGINT", "", "how many iterations"),
        ("times", "DOUBLE", "ratio", "the time of slow iterations or timers against the baseline"),
        "spread silence_ns",
        ("reports", "BIGINT", "", "of a timer: reports that show it"),
        ("of_reports", "BIGINT", "", "of how many"),
        ("event", "VARCHAR", "", "of a host: its code in the event catalogue, such as xid_79"),
        "meaning phase action command lines",
        ("looks", "BIGINT", "", "of a snapshot: readings of each GPU; of a test: slow runs"),
        "part parts",
        ("fatal", "BOOLEAN", "", "whether it says that it is fatal"),
        "domain is_up is_alone is_unnamed",
        ("is_undated", "BOOLEAN", "", "of a host: when it was is unknown"),
    ],
    source="PyTorch and NCCL sources; NVIDIA Xid catalogue; kernel messages; schedulers",
    params={
        "beyond": Param("120 %", "of the ranks' median: ranks of a stage differ by some percent"),
        "few_reports": Param(2, "in a row may be garbage collection, or long samples"),
        "several": Param(3, "losses of a scaler of mixed precision: it skips one or two"),
        "most": "lost_time.nearly_all",
        "large": Param("1 MiB", "of a size, at least: below, latency counts and not bandwidth"),
        "several_sizes": Param(3, "of a test: one is disturbed by chance"),
        "low": Param("80 %", "of the best run's: repeated runs differ by some percent"),
        "busy": Param("90 %", "of the time a kernel ran: NCCL's own kernels spin while they wait"),
        "idle": Param("5 %", "of the time: nothing was launched there"),
        "low_power": Param("35 %", "of the limit: kernels that compute take more"),
        "low_watts": Param(200, "where no limit is listed: as much as 35 % of most GPUs' limits"),
        "mostly": "machine_symptoms.mostly",
    },
)
def fault_reports() -> str:
    """What failed, what ended the job and what hosts state, each with its code."""
    words = {
        "about": "coalesce(about, code)",
        "call": "coalesce(op || coalesce(' ' || seq, ''), 'Collective ' || seq, 'A collective')",
        "crowd": "waiting || coalesce(' of ' || if(size IS NULL, 'at least ', '') || of_ranks, '') "
        "|| if(coalesce(of_ranks, waiting) = 1, ' rank', ' ranks')",
        "unseen": "CASE WHEN of_ranks > waiting THEN if(size IS NULL, 'at least ', '') "
        "|| (of_ranks - waiting) || ' of ' || of_ranks END",
        "consequences": "coalesce('Later lines that follow from it: ' "
        "|| nullif(consequences, 0) || '.', '')",
        "iteration": "coalesce(iteration, first_iteration)",
    }
    said = ", ".join(f"{words[name]} AS {name}" for name in words)
    return f"""{_STREAM}
        SELECT * EXCLUDE (about, consequences, iteration), {said}
        FROM (SELECT *, coalesce(size, most_known) AS of_ranks FROM reports)"""
