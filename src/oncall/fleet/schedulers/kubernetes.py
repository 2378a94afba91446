"""The pods of a training job, and `kubectl exec` to run in them.

pytorchjob/llama            the pods of a PyTorchJob in kubectl's current namespace
pytorchjob/llama@train      in namespace train
app=llama,tier=worker       pods by label
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from oncall.core.errors import UsageError
from oncall.fleet.command_prefix import INSTALL, CommandPrefix
from oncall.fleet.configuration import FleetConfiguration
from oncall.fleet.inventory import check_host
from oncall.fleet.outcome import pattern
from oncall.fleet.schedulers.tool import run_json_tool

# kind -> the label that its controller puts on the pods
_OF_OPERATOR = "training.kubeflow.org/job-name"
_OF_JOBSET = "jobset.sigs.k8s.io/jobset-name"
LABELS: Mapping[str, str] = {
    **dict.fromkeys(("pytorchjob", "mpijob", "paddlejob", "xgboostjob", "jaxjob"), _OF_OPERATOR),
    **dict.fromkeys(("jobset", "trainjob"), _OF_JOBSET),
    "raycluster": "ray.io/cluster",
    "job": "job-name",
}
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
_SELECTOR = re.compile(r"[A-Za-z0-9_./-]+={1,2}[A-Za-z0-9_.-]*(?:,[A-Za-z0-9_./-]+={1,2}[\w.-]*)*")
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


@dataclass(frozen=True)
class Pods:
    """Pods of a namespace: the Kubernetes node of each (empty: not scheduled), and the
    container that a command runs in."""

    namespace: str
    node_of: Mapping[str, str]
    container_of: Mapping[str, str]


def find_pods(which: str, configuration: FleetConfiguration) -> Pods:
    """The pods of `KIND/NAME[@NAMESPACE]` or `LABEL=VALUE[@NAMESPACE]`.

    Raises UsageError if there are none, or kubectl cannot say.
    """
    wanted, at, namespace = which.partition("@")
    if at and not _NAME.fullmatch(namespace):
        raise UsageError(f"kube:{which}: `{namespace}` is not a namespace")
    place = (f"--namespace={namespace}",) if at else ()
    argv = (*kubectl(configuration), "get", "pods", *place, _selected(which, wanted), "-o", "json")
    listed = run_json_tool(argv)
    items = listed.get("items") if isinstance(listed, dict) else None
    items = items if isinstance(items, list) else []
    pods = [one for one in items if isinstance(one, dict) and isinstance(_name(one), str)]
    if not pods:
        raise UsageError(f"kube:{which}: no pod has {argv[-3].partition('=')[2]}{_in(namespace)}")
    for one in pods:
        check_host(_name(one))
    return Pods(
        namespace or str(_part(pods[0], "metadata").get("namespace", "")),
        {_name(one): str(_part(one, "spec").get("nodeName") or "") for one in pods},
        {_name(one): _container(one) for one in pods},
    )


def kubectl(configuration: FleetConfiguration) -> tuple[str, ...]:
    """kubectl with the options of the configuration, such as its context."""
    return ("kubectl", *configuration.kubectl_options)


def in_pod(pods: Pods, configuration: FleetConfiguration) -> CommandPrefix:
    """Run a command in a pod's container."""
    space = f"--namespace={pods.namespace}"

    def words(pod: str) -> tuple[str, ...]:
        container = pods.container_of.get(pod)
        chosen = (f"--container={container}",) if container else ()
        return (*kubectl(configuration), "exec", "--stdin", space, pod, *chosen, "--")

    options = "".join(f" {one}" for one in configuration.kubectl_options)
    by_hand = f"kubectl{options} exec -i -n {pods.namespace} {{host}} --"
    return CommandPrefix("kubectl exec", words, by_hand, _KUBECTL_ERRORS)


def _selected(which: str, wanted: str) -> str:
    """The selector of the pods, as an option."""
    kind, slash, name = wanted.partition("/")
    if _SELECTOR.fullmatch(wanted):
        return f"--selector={wanted}"
    if slash and kind.lower() in LABELS and _NAME.fullmatch(name):
        return f"--selector={LABELS[kind.lower()]}={name}"
    raise UsageError(
        f"kube:{which}: expected KIND/NAME or LABEL=VALUE, and @NAMESPACE after it if needed; "
        f"known kinds: {', '.join(LABELS)}"
    )


def _container(pod: Mapping[str, Any]) -> str:
    """The container that kubectl takes by default, made explicit: it prints no remark then."""
    named = _part(_part(pod, "metadata"), "annotations").get(_DEFAULT_CONTAINER)
    containers = _part(pod, "spec").get("containers")
    first = containers[0] if isinstance(containers, list) and containers else {}
    return str(named or (first.get("name") if isinstance(first, dict) else "") or "")


def _name(pod: Mapping[str, Any]) -> Any:
    return _part(pod, "metadata").get("name")


def _part(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _in(namespace: str) -> str:
    return f" in namespace {namespace}" if namespace else ""


_KUBECTL_ERRORS = (
    pattern(
        "no-agent",
        r"executable file not found|stat .*no such file or directory",
        f"not in the container ({{line}}); {INSTALL}",
    ),
    pattern(
        "refused",
        r"cannot exec .* completed pod|container .* (?:is )?not (?:found|running|created)"
        r"|unable to upgrade connection: container not found",
        "its container does not run: {line}",
    ),
    pattern("refused", r"\(NotFound\)", "the pod is gone: {line}"),
    pattern("refused", r"pod .* does not have a host assigned|is not assigned to a node"),
    pattern(
        "auth",
        r"\(Unauthorized\)|upgrade connection: Unauthorized|must be logged in|token .*expired"
        r"|x509: certificate has expired|getting credentials",
        "the cluster does not accept your credentials: {line}; log in again",
    ),
    pattern(
        "auth",
        r"\(Forbidden\)|is forbidden",
        "you may not create pods/exec in this namespace: {line}",
    ),
    pattern("timeout", r"i/o timeout|TLS handshake timeout|context deadline exceeded"),
    pattern("refused", r"Unable to connect to the server|connection to the server .* was refused"),
    pattern("error", r"context .* does not exist|no configuration has been provided"),
)
