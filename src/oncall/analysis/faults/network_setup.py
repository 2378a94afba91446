"""How NCCL set up the network, where that costs bandwidth or chose what it should not."""

from __future__ import annotations

from oncall.analysis.faults.connections import LOCAL, VIRTUAL
from oncall.evidence import relation

# Adapters whose NCCL transport never has GPU Direct over verbs.
_WITHOUT_GDR = "^(hfi|qib|rxe|siw)"


def _hosts() -> str:
    """The number of hosts, if the log states it or shows that all ranks are on one. Where several
    processes of the only host print, and fewer than the communicator has, there are other hosts."""
    return """
        hosts AS (
            SELECT job, attempt, max(number) FILTER (code = 'nodes') AS stated,
                count(DISTINCT node) AS named, count(DISTINCT coalesce(pid, -1)) AS seen,
                max(number) FILTER (kind = 'nccl_init' AND comm_rank IS NOT NULL) AS size,
                CASE WHEN stated IS NOT NULL THEN stated WHEN named > 1 THEN named
                    WHEN size <= $on_one_node AND (seen = 1 OR seen >= size) THEN 1 END AS nodes
            FROM log_events WHERE kind IN ('nccl_init', 'net') GROUP BY ALL)
    """


@relation(
    "network_setup",
    reads=["log_events"],
    columns=[
        "job attempt",
        ("problem", "VARCHAR", "", "socket_fallback, gdr_off, wrong_interface, p2p_disabled"),
        (
            "reason",
            "VARCHAR",
            "",
            "no_device, no_verbs, no_plugin, socket, disabled, channels, virtual, local",
        ),
        ("node", "VARCHAR", "", "host, if the text names one"),
        ("nic", "VARCHAR", "", "RDMA device or interface"),
        ("at_ns", "BIGINT", "ns", "stamp of the line"),
        "path line",
        ("text", "VARCHAR", "", "what it says"),
        ("nodes", "BIGINT", "nodes", "hosts that the job is known to have; NULL: unknown"),
    ],
    source="NCCL's debug output (INIT, NET)",
    params={
        "on_one_node": "delay_causes.few",
    },
)
def network_setup() -> str:
    """Each problem once a host. Where lines are of a GPU and an adapter each, GPU Direct is off for
    those of a GPU that has it with none of its host: with far adapters no GPU has it."""
    return f"""
        WITH {_hosts()},
        net AS (
            SELECT *, split_part(coalesce(device, ''), ' of ', 2) AS of_gpu,
                regexp_matches(coalesce(device, ''), '{VIRTUAL}', 'i') AS is_virtual,
                row_number() OVER (ORDER BY at_ns NULLS FIRST, path, line) AS nth
            FROM log_events WHERE kind = 'net'),
        said AS (
            SELECT job, attempt, min_by({{'code': code, 'text': text}}, nth)
                    FILTER (code IN ('no_device', 'no_verbs', 'no_plugin')) AS why,
                bool_or(code = 'hca' AND NOT regexp_matches(coalesce(device, ''), '{_WITHOUT_GDR}'))
                    AND NOT bool_or(code = 'channel_gdr') AS lacks_gdr
            FROM net GROUP BY ALL)
        SELECT n.* REPLACE (
                if(code = 'network', coalesce(why.text, n.text), n.text) AS text),
            CASE code WHEN 'network' THEN 'socket_fallback' WHEN 'interface' THEN 'wrong_interface'
                WHEN 'p2p_disabled' THEN code ELSE 'gdr_off' END AS problem,
            CASE code WHEN 'network' THEN coalesce(why.code, 'socket')
                WHEN 'interface' THEN if(is_virtual, 'virtual', 'local')
                WHEN 'channel_no_gdr' THEN 'channels' ELSE 'disabled' END AS reason,
            device AS nic, nodes
        FROM net n JOIN said USING (job, attempt) JOIN hosts USING (job, attempt)
        WHERE CASE code WHEN 'network' THEN starts_with(n.text, 'Socket')
            WHEN 'interface' THEN is_virtual OR regexp_matches(coalesce(peer_host, ''), '{LOCAL}')
            WHEN 'channel_no_gdr' THEN lacks_gdr
            WHEN 'gdr_disabled' THEN of_gpu = '' OR NOT EXISTS (FROM net a
                WHERE a.code = 'gdr_enabled' AND a.job = n.job AND a.attempt = n.attempt
                    AND a.node IS NOT DISTINCT FROM n.node AND a.of_gpu = n.of_gpu)
            ELSE code = 'p2p_disabled' END
        QUALIFY row_number() OVER (PARTITION BY job, attempt, problem, n.node
            ORDER BY reason DESC, nth) = 1
    """
