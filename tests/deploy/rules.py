"""What must be true of an installation, said in code: each rule lists what breaks it.

A JSON schema knows which fields there are; these know what they are for. A rule takes all
objects of one installation and returns findings, none where it holds. That each rule finds
what it should is tested with objects broken on purpose.
"""

import re
from collections.abc import Iterator
from typing import Any

from tests.deploy.chart import Object

GRPC_PORT = 8001
METRICS_PORT = 8002
CLOSE_S = 5  # to close what the drain left, and for the interpreter to end
# Volumes that Pod Security `restricted` lets be; `image` since Kubernetes 1.33.
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
DOWNLOADERS = ("curl", "wget", "aws", "gsutil", "git", "huggingface", "pip")


# --- reading objects


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def deployment(objects: list[Object]) -> Object:
    (one,) = of_kind(objects, "Deployment")
    return one


def pod_of(objects: list[Object]) -> Object:
    spec: Object = deployment(objects)["spec"]["template"]["spec"]
    return spec


def server_of(objects: list[Object]) -> Object:
    """The container that serves."""
    return next(one for one in pod_of(objects)["containers"] if one["name"] == "attendant")


def _pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod's name and specification, those of hooks too."""
    for one in objects:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def _containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def variables(container: Object) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def _labels(objects: list[Object]) -> Object:
    labels: Object = deployment(objects)["spec"]["template"]["metadata"]["labels"]
    return labels


def _selects(selector: Object, labels: Object) -> bool:
    return bool(selector) and selector.items() <= labels.items()


# --- the rules


def pod_security(objects: list[Object]) -> list[str]:
    """Pod Security `restricted` has nothing to say, and neither root nor token is there to use."""
    found = []
    for name, pod in _pods(objects):
        context = pod.get("securityContext", {})
        expected: dict[str, bool] = {
            "runAsNonRoot": context.get("runAsNonRoot") is True,
            "a numeric user": context.get("runAsUser", 0) > 0,
            "seccomp": context.get("seccompProfile", {}).get("type") == "RuntimeDefault",
            "no token": pod.get("automountServiceAccountToken") is False,
            "no host": not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys(),
            "volumes": all(
                volume.keys() - {"name"} <= RESTRICTED_VOLUMES for volume in pod.get("volumes", [])
            ),
        }
        for container in _containers(pod):
            own = container.get("securityContext", {})
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            expected |= {
                f"{container['name']}: no escalation": own.get("allowPrivilegeEscalation") is False,
                f"{container['name']}: no capabilities": own.get("capabilities")
                == {"drop": ["ALL"]},
                f"{container['name']}: a read-only root": own.get("readOnlyRootFilesystem") is True,
                f"{container['name']}: not its own user": not {"runAsUser", "privileged"}
                & own.keys(),
                f"{container['name']}: no host port": all(
                    "hostPort" not in port for port in container.get("ports", [])
                ),
            }
            if container in pod["containers"]:
                empty = {one["name"] for one in pod.get("volumes", []) if "emptyDir" in one}
                expected[f"{container['name']}: /tmp"] = mounts.get("/tmp") in empty
        found += [f"{name}: expected {what}" for what, holds in expected.items() if not holds]
    return found


def probes(objects: list[Object]) -> list[str]:
    """Health over gRPC: `readiness` until started and for traffic, `liveness` for a restart."""
    server = server_of(objects)
    has_tls = "ATTENDANT_TLS_CERT" in variables(server)
    services = {
        "startupProbe": "readiness",
        "readinessProbe": "readiness",
        "livenessProbe": "liveness",
    }
    found = []
    for name, service in services.items():
        probe = server.get(name, {})
        if has_tls:
            command = probe.get("exec", {}).get("command", [])
            asks = command[:2] == ["attendant", "healthcheck"] and service in command
        else:
            asks = probe.get("grpc") == {"port": GRPC_PORT, "service": service}
        if not asks:
            found.append(f"{name} does not ask for {service}")
        elif probe["timeoutSeconds"] < 2:
            found.append(f"{name} gives a busy server less than 2 s")
    startup = server.get("startupProbe", {"periodSeconds": 0, "failureThreshold": 0})
    if startup["periodSeconds"] * startup["failureThreshold"] < 60:
        found.append("models have less than 60 s to load")
    return found


def drain(objects: list[Object]) -> list[str]:
    """A pod has left its Services, and answered what it admitted, before it is killed."""
    server = server_of(objects)
    settings = variables(server)
    sleep_s = server.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    parts = (
        sleep_s,
        *(float(settings[f"ATTENDANT_{name}_S"]) for name in ("DRAIN_DELAY", "DRAIN_TIMEOUT")),
    )
    grace_s = pod_of(objects)["terminationGracePeriodSeconds"]
    found = []
    if sleep_s == 0:
        found.append("no sleep before SIGTERM")
    if grace_s < sum(parts) + CLOSE_S:
        found.append(f"killed after {grace_s} s, and draining takes {parts} and {CLOSE_S} s")
    if not 0 < parts[2] <= float(settings["ATTENDANT_CONNECTION_GRACE_S"]):
        found.append("an aged connection has less time for its calls than a drain")
    return found


def disruption(objects: list[Object]) -> list[str]:
    """Nodes are emptied one pod at a time, pods are spread, and only two ports are open."""
    labels, found = _labels(objects), []
    budgets = of_kind(objects, "PodDisruptionBudget")
    if [one["spec"].get("maxUnavailable") for one in budgets] != [1]:
        found.append("no budget of one pod")
    for one in budgets:
        if one["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            found.append("a broken pod holds its node")
        if not _selects(one["spec"]["selector"]["matchLabels"], labels):
            found.append("the budget is of other pods")
    spread = pod_of(objects).get("topologySpreadConstraints", [])
    if not spread:
        found.append("pods are not spread")
    for one in spread:
        if one.get("matchLabelKeys") != ["pod-template-hash"]:
            found.append(f"old pods count when new ones are spread over {one['topologyKey']}")
        if not _selects(one["labelSelector"]["matchLabels"], labels):
            found.append(f"other pods are spread over {one['topologyKey']}")
    policies = of_kind(objects, "NetworkPolicy")
    if not policies:
        found.append("no NetworkPolicy")
    for one in policies:
        spec = one["spec"]
        ports = [port["port"] for rule in spec["ingress"] for port in rule.get("ports", [])]
        if set(ports) != {"grpc", "metrics"} or not all("ports" in r for r in spec["ingress"]):
            found.append(f"the NetworkPolicy opens {ports}")
        if set(spec["policyTypes"]) != {"Ingress", "Egress"}:
            found.append("the NetworkPolicy leaves a direction open")
        if not _selects(spec["podSelector"]["matchLabels"], labels):
            found.append("the NetworkPolicy is of other pods")
    return found


def rollout(objects: list[Object]) -> list[str]:
    """New pods come first; where each has a GPU, old ones go first, or none would be free."""
    spec = deployment(objects)["spec"]
    has_gpu = _num_gpus(server_of(objects)) > 0
    update = spec.get("strategy", {}).get("rollingUpdate", {})
    found = []
    if (update.get("maxSurge"), update.get("maxUnavailable")) != ((0, 1) if has_gpu else (1, 0)):
        found.append(f"{'with' if has_gpu else 'without'} GPUs, the rollout is {update}")
    startup = server_of(objects).get("startupProbe", {"periodSeconds": 0, "failureThreshold": 0})
    startup_s = startup["periodSeconds"] * startup["failureThreshold"]
    if spec.get("progressDeadlineSeconds", 600) <= startup_s + spec.get("minReadySeconds", 0):
        found.append("a rollout fails while its pods may still load models")
    if spec.get("minReadySeconds", 0) < 30:
        found.append("old pods end before clients have looked names up again")
    return found


def services(objects: list[Object]) -> list[str]:
    """A headless Service for clients that balance, with a protocol that proxies know."""
    labels, found = _labels(objects), []
    ports = {one["name"]: one["containerPort"] for one in server_of(objects)["ports"]}
    if ports != {"grpc": GRPC_PORT, "metrics": METRICS_PORT}:
        found.append(f"the container's ports are {ports}")
    grpc = "https" if "ATTENDANT_TLS_CERT" in variables(server_of(objects)) else "kubernetes.io/h2c"
    named = {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, "Service")}
    if "None" not in [spec.get("clusterIP") for spec in named.values()]:
        found.append("no headless Service")
    for name, spec in named.items():
        if not _selects(spec["selector"], labels):
            found.append(f"{name} leads to other pods")
        for port in spec["ports"]:
            expected = {"grpc": grpc, "metrics": "http"}[port["name"]]
            if port.get("appProtocol") != expected:
                found.append(f"{name}: {port['name']} is not {expected}")
            if port["targetPort"] not in ports:
                found.append(f"{name}: {port['name']} leads nowhere")
    for route in of_kind(objects, "GRPCRoute"):
        for backend in (b for rule in route["spec"]["rules"] for b in rule["backendRefs"]):
            spec = named.get(backend["name"], {"clusterIP": "None", "ports": []})
            if backend["port"] not in [port["port"] for port in spec["ports"]]:
                found.append(f"the route leads to {backend['name']}, which there is not")
            if spec.get("clusterIP") == "None":
                found.append("the route leads to a Service without address")
    found += [
        f"calls are led to {pod['metadata']['name']}"
        for pod in of_kind(objects, "Pod")
        if any(_selects(spec["selector"], pod["metadata"]["labels"]) for spec in named.values())
    ]
    if pod_of(objects).get("enableServiceLinks") is not False:
        found.append("Services' variables are taken for settings, as ATTENDANT_METRICS_PORT")
    return found


def autoscaling(objects: list[Object]) -> list[str]:
    """One owner of the number of pods, on one aggregated number, that never reaches zero."""
    found = []
    scalers = of_kind(objects, "HorizontalPodAutoscaler", "ScaledObject")
    replicas = deployment(objects)["spec"].get("replicas")
    if (replicas is None) != (len(scalers) == 1):
        found.append(f"{len(scalers)} autoscalers, and replicas is {replicas}")
    for one in scalers:
        spec = one["spec"]
        is_hpa = one["kind"] == "HorizontalPodAutoscaler"
        if is_hpa and one["apiVersion"] != "autoscaling/v2":
            found.append(f"{one['apiVersion']} is gone")
        if spec["scaleTargetRef"]["name"] != deployment(objects)["metadata"]["name"]:
            found.append("it scales something else")
        low, high = (
            spec[f"{bound}{'Replicas' if is_hpa else 'ReplicaCount'}"] for bound in ("min", "max")
        )
        if not 1 <= low <= high:
            found.append(f"from {low} to {high} pods")
        behavior = (
            spec if is_hpa else spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {})
        ).get("behavior", {})
        if behavior.keys() != {"scaleUp", "scaleDown"}:
            found.append("up and down are not both said")
        found += _hpa_metrics(spec) if is_hpa else _keda_triggers(spec)
    return found


def _hpa_metrics(spec: Object) -> list[str]:
    found = []
    for metric in spec["metrics"]:
        target = metric.get(metric["type"].lower(), {}).get("target", {})
        if metric["type"] not in ("Pods", "External"):
            found.append(f"{metric['type']} is not the requests in flight")
        elif target.get("type") != "AverageValue" or float(target["averageValue"]) < 1:
            found.append(f"the target is {target}")
    return found


def _keda_triggers(spec: Object) -> list[str]:
    found = []
    if spec.get("fallback", {}).get("behavior") != "currentReplicasIfHigher":
        found.append("a silent Prometheus scales down")
    for trigger in spec["triggers"]:
        metadata = trigger["metadata"]
        terms = metadata["query"].split(" + ")
        if not all(re.fullmatch(r"sum\(attendant_requests_\w+\{.+\}\)", term) for term in terms):
            found.append(f"not one number: {metadata['query']}")
        if metadata.get("ignoreNullValues") != "false":
            found.append("no answer counts as no load")
        if trigger.get("metricType") != "AverageValue":
            found.append("the threshold is not per pod")
    return found


def monitoring(objects: list[Object]) -> list[str]:
    """What scrapes finds the metrics port once, and rules and dashboards are whole."""
    found = []
    annotations = deployment(objects)["spec"]["template"]["metadata"]["annotations"]
    monitors = of_kind(objects, "ServiceMonitor", "PodMonitor")
    if len(monitors) + ("prometheus.io/scrape" in annotations) > 1:
        found.append("scraped twice")
    if annotations.get("prometheus.io/port", str(METRICS_PORT)) != str(METRICS_PORT):
        found.append("another port is scraped")
    for one in monitors:
        spec = one["spec"]
        if one["kind"] == "PodMonitor":
            targets = [_labels(objects)]
        else:
            targets = [
                service["metadata"]["labels"]
                for service in of_kind(objects, "Service")
                if "metrics" in [port["name"] for port in service["spec"]["ports"]]
            ]
        selector = spec["selector"]["matchLabels"]
        if [_selects(selector, labels) for labels in targets] != [True]:
            found.append(f"the {one['kind']} selects {selector}")
        ends = spec.get("endpoints", spec.get("podMetricsEndpoints"))
        if [end["port"] for end in ends] != ["metrics"]:
            found.append(f"the {one['kind']} scrapes {ends}")
    for one in of_kind(objects, "PrometheusRule"):
        rules = [rule for group in one["spec"]["groups"] for rule in group["rules"]]
        if not any("alert" in rule for rule in rules):
            found.append("rules without an alert")
    return found


def model_repository(objects: list[Object]) -> list[str]:
    """Models are read, never written and never downloaded; GPUs are asked for in every way."""
    pod, server = pod_of(objects), server_of(objects)
    folder = variables(server)["ATTENDANT_MODEL_REPOSITORY"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    found = []
    for mount in server["volumeMounts"]:
        volume = volumes.get(mount["name"])
        if volume is None:
            found.append(f"{mount['name']} is mounted and no volume")
        elif mount["mountPath"] != "/tmp" and mount.get("readOnly") is not True:
            found.append(f"{mount['mountPath']} can be written")
        if volume and mount["mountPath"] == folder:
            is_filled = "initContainers" in pod
            if "emptyDir" in volume and not is_filled:
                found.append("the model repository is empty")
            if volume.get("persistentVolumeClaim", {}).get("readOnly") is False:
                found.append("the claim can be written")
    for container in _containers(pod):
        words = " ".join(container.get("command", []) + container.get("args", []))
        if any(re.search(rf"\b{tool}\b", words) for tool in DOWNLOADERS) or "://" in words:
            found.append(f"{container['name']} downloads: {words}")
    return found + _gpu(pod, server)


def _num_gpus(server: Object) -> int:
    limits = server["resources"].get("limits", {})
    return sum(int(count) for name, count in limits.items() if name.endswith("/gpu"))


def _gpu(pod: Object, server: Object) -> list[str]:
    device = variables(server)["ATTENDANT_DEVICE"]
    if device != "cuda":
        return [] if _num_gpus(server) == 0 else ["a GPU is taken and not used"]
    found = [] if _num_gpus(server) > 0 else ["no GPU is asked for"]
    if not any(one.get("key", "").endswith("/gpu") for one in pod.get("tolerations", [])):
        found.append("nodes with GPUs are not tolerated")
    return found


def resources(objects: list[Object]) -> list[str]:
    """Images are fixed, memory is bounded, and threads follow the processors requested."""
    found = []
    for name, pod in _pods(objects):
        for container in _containers(pod):
            where = f"{name}, {container['name']}"
            if not re.search(r"(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+)$", container["image"]):
                found.append(f"{where}: {container['image']} may change")
            given = container.get("resources", {})
            if "memory" not in given.get("limits", {}):
                found.append(f"{where}: memory is not bounded")
            if given.get("requests", {}).keys() & {"cpu", "memory"} != {"cpu", "memory"}:
                found.append(f"{where}: asks for nothing")
    threads = variables(server_of(objects))["ATTENDANT_NUM_THREADS"]
    if not isinstance(threads, dict) or threads["resourceFieldRef"] != {
        "containerName": "attendant",
        "resource": "requests.cpu",
        "divisor": "1",
    }:
        found.append(f"threads are {threads}, whatever is requested")
    return found


RULES = [
    pod_security,
    probes,
    drain,
    disruption,
    rollout,
    services,
    autoscaling,
    monitoring,
    model_repository,
    resources,
]
