"""What must be true of the pods of an installation: see `rules.py`."""

import re
from collections.abc import Iterator

from deploy.generate.chart import Object
from tests.deploy.objects import (
    containers,
    num_gpus,
    pod_of,
    pods,
    quantity,
    server_of,
    startup_s,
    twice,
    variables,
)

GRPC_PORT = 8001
HTTP_PORT = 8000
METRICS_PORT = 8002
CLOSE_S = 5  # to close what the drain left, and for the interpreter to end
# Volumes that Pod Security `restricted` lets be; `image` since Kubernetes 1.33.
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
DOWNLOADERS = ("curl", "wget", "aws", "gsutil", "git", "huggingface", "pip")


def pod_security(objects: list[Object]) -> list[str]:
    """Pod Security `restricted` has nothing to say, and neither root nor token is there to use."""
    found = []
    for name, pod in pods(objects):
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
        for container in containers(pod):
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
    """Traffic by gRPC's health; start and restart by the metrics port, which is always answered."""
    server = server_of(objects)
    has_tls = "ATTENDANT_TLS_CERT" in variables(server)
    paths = {"startupProbe": "/v2/health/ready", "livenessProbe": "/v2/health/live"}
    services = {"startupProbe": "start", "readinessProbe": "readiness", "livenessProbe": "liveness"}
    found = []
    for name, service in services.items():
        probe = server.get(name, {})
        if name in paths:
            asks = probe.get("httpGet") == {"path": paths[name], "port": METRICS_PORT}
        elif has_tls:
            command = probe.get("exec", {}).get("command", [])
            asks = command[:2] == ["attendant", "healthcheck"] and service in command
        else:
            asks = probe.get("grpc") == {"port": GRPC_PORT, "service": service}
        if not asks:
            found.append(f"{name} does not ask for {service}")
        elif probe["timeoutSeconds"] < 2:
            found.append(f"{name} gives a busy server less than 2 s")
    if startup_s(server) < 60:
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
    liveness = server.get("livenessProbe", {})
    kill_s = liveness.get("terminationGracePeriodSeconds", grace_s)
    if not sleep_s < kill_s <= sleep_s + CLOSE_S:
        found.append(f"a process that hangs is killed {kill_s} s after it was found")
    if sleep_s == 0:
        found.append("no sleep before SIGTERM")
    if grace_s < sum(parts) + CLOSE_S:
        found.append(f"killed after {grace_s} s, and draining takes {parts} and {CLOSE_S} s")
    if not 0 < parts[2] <= float(settings["ATTENDANT_CONNECTION_GRACE_S"]):
        found.append("an aged connection has less time for its calls than a drain")
    return found


def model_repository(objects: list[Object]) -> list[str]:
    """Models must be there, are only read and never downloaded; GPUs are asked for in every way."""
    pod, server = pod_of(objects), server_of(objects)
    folder = variables(server)["ATTENDANT_MODEL_REPOSITORY"]
    volumes = {one["name"]: one for one in pod["volumes"]}
    is_explicit = variables(server)["ATTENDANT_MODEL_CONTROL_MODE"] == "explicit"
    found = []
    if not is_explicit and int(variables(server).get("ATTENDANT_MIN_MODELS", 0)) < 1:
        found.append("a pod without models is ready")
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
    for container in containers(pod):
        words = " ".join(container.get("command", []) + container.get("args", []))
        if any(re.search(rf"\b{tool}\b", words) for tool in DOWNLOADERS) or "://" in words:
            found.append(f"{container['name']} downloads: {words}")
    return found + _gpu(pod, server)


def _gpu(pod: Object, server: Object) -> list[str]:
    device = variables(server)["ATTENDANT_DEVICE"]
    if device != "cuda":
        return [] if num_gpus(server) == 0 else ["a GPU is taken and not used"]
    found = [] if num_gpus(server) > 0 else ["no GPU is asked for"]
    tolerated = {one.get("key") for one in pod.get("tolerations", [])}
    taken = {name for name in server["resources"]["limits"] if name.startswith("nvidia.com/")}
    if not tolerated >= taken | {"nvidia.com/gpu"}:
        found.append("nodes with GPUs are not tolerated")
    return found


def resources(objects: list[Object]) -> list[str]:
    """Images are fixed, memory is bounded, and threads follow the processors requested."""
    found = bounded(objects)
    threads = variables(server_of(objects))["ATTENDANT_NUM_THREADS"]
    if not isinstance(threads, dict) or threads["resourceFieldRef"] != {
        "containerName": "attendant",
        "resource": "requests.cpu",
        "divisor": "1",
    }:
        found.append(f"threads are {threads}, whatever is requested")
    return found


def bounded(objects: list[Object]) -> list[str]:
    """Of any pods: images are fixed, memory is bounded, and something is asked for."""
    found = []
    for name, pod in pods(objects):
        for container in containers(pod):
            where = f"{name}, {container['name']}"
            if not re.search(r"(@sha256:[0-9a-f]{64}|:(?!latest$)[\w.-]+)$", container["image"]):
                found.append(f"{where}: {container['image']} may change")
            given = container.get("resources", {})
            if "memory" not in given.get("limits", {}):
                found.append(f"{where}: memory is not bounded")
            if given.get("requests", {}).keys() & {"cpu", "memory"} != {"cpu", "memory"}:
                found.append(f"{where}: asks for nothing")
    return found


def bad_container(container: Object) -> Iterator[str]:
    for what, names in {
        "variable": [one["name"] for one in container.get("env", [])],
        "port": [one["name"] for one in container.get("ports", [])],
        "mount": [one["mountPath"] for one in container["volumeMounts"]],
    }.items():
        yield from (f"{what} {name} is there twice" for name in twice(names))
    requests, limits = (container["resources"].get(n, {}) for n in ("requests", "limits"))
    for name in requests.keys() & limits.keys():
        if quantity(requests[name]) > quantity(limits[name]):
            yield f"asks for more {name} than its limit"
