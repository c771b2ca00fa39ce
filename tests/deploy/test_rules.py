"""The rules find what they are for: objects are broken on purpose, one field at a time."""

from typing import Any

import jsonschema
import kubernetes_validate
import pytest

from deploy.generate.chart import Object, render_named
from tests.deploy.objects import pod_of, server_of
from tests.deploy.rules import RULES
from tests.deploy.test_chart import validate_all

ABSENT = object()


def _roots(objects: list[Object]) -> dict[str, Any]:
    """What paths begin with: objects by kind, and the parts of the Deployment that matter most."""
    server = server_of(objects)
    return {one["kind"]: one for one in reversed(objects)} | {
        "pod": pod_of(objects),
        "server": server,
        "variables": {one["name"]: one for one in server["env"]},
    }


def change(objects: list[Object], path: str, value: Any) -> None:
    """Set what a path with dots leads to, append to it where it ends with +, or take it away."""
    one: Any = _roots(objects)
    *parents, last = (int(name) if name.isdecimal() else name for name in path.split("."))
    for name in parents:
        one = one[name]
    if last == "+":
        one.append(value)
    elif value is ABSENT:
        del one[last]
    else:
        one[last] = value


SURGE = {"maxSurge": 1, "maxUnavailable": 0}
SHARES = {"maxSurge": "25%", "maxUnavailable": "25%"}
TCP = {"tcpSocket": {"port": 8001}, "timeoutSeconds": 5}
GRPC = {"grpc": {"port": 8001, "service": "readiness"}, "timeoutSeconds": 5}
HOST = {"name": "host", "hostPath": {"path": "/"}}
TMP = {"name": "tmp", "mountPath": "/tmp"}
OTHER = {"app": "other"}
SELECTED = {"app.kubernetes.io/name": "attendant", "app.kubernetes.io/instance": "demo"}
CURL = ["curl", "-O", "example.com/model"]
QUERY = "ScaledObject.spec.triggers.0.metadata.query"
SPREAD = "pod.topologySpreadConstraints"
UPDATE = "Deployment.spec.strategy.rollingUpdate"
ANNOTATIONS = "Deployment.spec.template.metadata.annotations"
INIT = "pod.initContainers.0"
LIVENESS = "server.livenessProbe"

MIG = [{"key": "nvidia.com/mig-3g.40gb", "operator": "Exists", "effect": "NoSchedule"}]
BROKEN: dict[str, list[tuple[str, str, str, Any]]] = {
    # by rule: values, what is found, path, what is put there
    "admissible": [
        ("baked", "a bad name", "Service.metadata.name", "Attendant_1"),
        ("baked", "its own pods", "Deployment.spec.selector.matchLabels", OTHER),
        ("baked", "the label", "Deployment.metadata.labels.version", "1+2"),
        ("baked", "no such service account", "pod.serviceAccountName", "other"),
        ("baked", "no volume", "server.volumeMounts.+", {"name": "x", "mountPath": "/x"}),
        ("baked", "is not mounted", "pod.volumes.+", HOST),
        ("baked", "mount /tmp is there twice", "server.volumeMounts.+", TMP),
        ("baked", "HOST is there twice", "server.env.+", {"name": "ATTENDANT_HOST", "value": ""}),
        ("baked", "more memory", "server.resources.requests.memory", "6000Mi"),
        ("guarded", "is there twice", "ServiceAccount.kind", "ServiceMonitor"),
    ],
    "pod_security": [
        ("baked", "seccomp", "pod.securityContext.seccompProfile.type", "Unconfined"),
        ("baked", "no token", "pod.automountServiceAccountToken", ABSENT),
        ("baked", "numeric", "pod.securityContext.runAsUser", ABSENT),
        ("baked", "runAsNonRoot", "pod.securityContext.runAsNonRoot", ABSENT),
        ("baked", "no host", "pod.hostNetwork", True),
        ("baked", "volumes", "pod.volumes.+", HOST),
        ("baked", "read-only", "server.securityContext.readOnlyRootFilesystem", False),
        ("baked", "capabilities", "server.securityContext.capabilities", {"drop": ["NET_RAW"]}),
        ("baked", "/tmp", "server.volumeMounts", []),
        ("baked", "healthcheck: no escalation", "Pod.spec.containers.0.securityContext", {}),
        ("hpa", "models: no escalation", f"{INIT}.securityContext", {}),
    ],
    "probes": [
        ("baked", "readinessProbe", "server.readinessProbe", TCP),
        ("baked", "livenessProbe", "server.livenessProbe.httpGet.path", "/v2/health/ready"),
        ("baked", "livenessProbe", "server.livenessProbe.httpGet.port", 8000),
        ("guarded", "startupProbe", "server.startupProbe.httpGet.port", 8001),
        ("baked", "less than 2 s", "server.livenessProbe.timeoutSeconds", 1),
        ("baked", "60 s", "server.startupProbe.failureThreshold", 3),
        ("guarded", "readinessProbe", "server.readinessProbe", GRPC),
    ],
    "drain": [
        ("baked", "no sleep", "server.lifecycle", ABSENT),
        ("baked", "killed after 30", "pod.terminationGracePeriodSeconds", 30),
        ("baked", "less time", "variables.ATTENDANT_CONNECTION_GRACE_S.value", "10"),
        ("baked", "killed 50 s after", f"{LIVENESS}.terminationGracePeriodSeconds", ABSENT),
        ("baked", "killed 5 s after", f"{LIVENESS}.terminationGracePeriodSeconds", 5),
    ],
    "disruption": [
        ("baked", "ever leave", "PodDisruptionBudget.spec.maxUnavailable", 0),
        ("ways-out", "ever leave", "PodDisruptionBudget.spec.minAvailable", "100%"),
        ("baked", "0 budgets", "PodDisruptionBudget.kind", "Role"),
        ("ways-out", "everybody may", "NetworkPolicy.spec.ingress.3.from", ABSENT),
        ("baked", "broken", "PodDisruptionBudget.spec.unhealthyPodEvictionPolicy", ABSENT),
        ("baked", "other pods", "PodDisruptionBudget.spec.selector.matchLabels", OTHER),
        ("baked", "old pods count", f"{SPREAD}.0.matchLabelKeys", ABSENT),
        ("baked", "other pods are spread", f"{SPREAD}.0.labelSelector.matchLabels", OTHER),
        ("baked", "not spread", SPREAD, ABSENT),
        ("baked", "opens", "NetworkPolicy.spec.ingress.+", {}),
        ("baked", "direction", "NetworkPolicy.spec.policyTypes", ["Ingress"]),
        ("baked", "is of other", "NetworkPolicy.spec.podSelector.matchLabels", OTHER),
        ("baked", "no NetworkPolicy", "NetworkPolicy.kind", "Ingress"),
    ],
    "rollout": [
        ("keda", "with GPUs", UPDATE, SURGE),
        ("baked", "without GPUs", UPDATE, SHARES),
        ("baked", "rollout fails", "Deployment.spec.progressDeadlineSeconds", ABSENT),
        ("baked", "looked names up", "Deployment.spec.minReadySeconds", ABSENT),
    ],
    "services": [
        ("baked", "no headless", "Service.spec.clusterIP", ABSENT),
        ("baked", "other pods", "Service.spec.selector", OTHER),
        ("baked", "h2c", "Service.spec.ports.0.appProtocol", ABSENT),
        ("guarded", "not https", "Service.spec.ports.0.appProtocol", "kubernetes.io/h2c"),
        ("baked", "nowhere", "Service.spec.ports.0.targetPort", "gprc"),
        ("baked", "ports are", "server.ports.0.containerPort", 9000),
        ("guarded", "there is not", "GRPCRoute.spec.rules.0.backendRefs.0.name", "other"),
        (
            "guarded",
            "without address",
            "GRPCRoute.spec.rules.0.backendRefs.0.name",
            "demo-attendant",
        ),
        (
            "guarded",
            "HTTPRoute leads to port 8001",
            "HTTPRoute.spec.rules.0.backendRefs.0.port",
            8001,
        ),
        ("baked", "taken for settings", "pod.enableServiceLinks", ABSENT),
        ("baked", "calls are led", "Pod.metadata.labels", SELECTED),
    ],
    "autoscaling": [
        ("hpa", "replicas is 2", "Deployment.spec.replicas", 2),
        ("baked", "replicas is None", "Deployment.spec.replicas", ABSENT),
        ("hpa", "something else", "HorizontalPodAutoscaler.spec.scaleTargetRef.name", "other"),
        ("hpa", "Resource", "HorizontalPodAutoscaler.spec.metrics.0.type", "Resource"),
        ("hpa", "target", "HorizontalPodAutoscaler.spec.metrics.0.pods.target.type", "Value"),
        ("hpa", "up and down", "HorizontalPodAutoscaler.spec.behavior.scaleDown", ABSENT),
        ("keda", "not one number", QUERY, "attendant_requests_waiting"),
        ("keda", "no load", "ScaledObject.spec.triggers.0.metadata.ignoreNullValues", "true"),
        ("keda", "not per pod", "ScaledObject.spec.triggers.0.metricType", "Value"),
        ("keda", "silent", "ScaledObject.spec.fallback", ABSENT),
        ("keda", "from 0", "ScaledObject.spec.minReplicaCount", 0),
    ],
    "monitoring": [
        ("keda", "twice", ANNOTATIONS, {"prometheus.io/scrape": "true"}),
        ("hpa", "another port", ANNOTATIONS, {"prometheus.io/port": "8001"}),
        ("keda", "selects", "PodMonitor.spec.selector.matchLabels", OTHER),
        ("guarded", "selects", "ServiceMonitor.spec.selector.matchLabels", OTHER),
        ("guarded", "scrapes", "ServiceMonitor.spec.endpoints.0.port", "http"),
        ("guarded", "without an alert", "PrometheusRule.spec.groups", []),
    ],
    "model_repository": [
        ("plain", "without models is ready", "variables.ATTENDANT_MIN_MODELS.value", "0"),
        ("plain", "can be written", "server.volumeMounts.1.readOnly", ABSENT),
        ("plain", "claim can", "pod.volumes.1.persistentVolumeClaim.readOnly", False),
        ("plain", "no volume", "pod.volumes", []),
        ("hpa", "is empty", "pod.initContainers", ABSENT),
        ("hpa", "downloads", f"{INIT}.command", CURL),
        ("keda", "no GPU", "server.resources.limits", {"memory": "1Gi"}),
        ("baked", "not used", "server.resources.limits", {"nvidia.com/gpu": 1}),
        ("keda", "tolerated", "pod.tolerations", []),
        ("mig", "tolerated", "pod.tolerations", MIG),
    ],
    "resources": [
        ("baked", "may change", "server.image", "attendant:latest"),
        ("baked", "may change", "server.image", "example.com:5000/attendant"),
        ("baked", "not bounded", "server.resources.limits", {}),
        ("baked", "asks for nothing", "server.resources.requests", {}),
        ("baked", "threads are None", "variables.ATTENDANT_NUM_THREADS.valueFrom", None),
    ],
}


@pytest.mark.parametrize(
    ("rule", "values", "found", "path", "value"),
    [(rule, *broken) for rule, cases in BROKEN.items() for broken in cases],
)
def test_a_broken_installation_is_found(
    rule: str, values: str, found: str, path: str, value: object
) -> None:
    objects = render_named(f"{values}-values.yaml")
    change(objects, path, value)
    findings = RULES[rule](objects)
    assert any(found in one for one in findings), findings


def test_every_rule_has_been_broken() -> None:
    assert BROKEN.keys() == RULES.keys()


@pytest.mark.parametrize(
    "path",
    [
        "ScaledObject.spec.triggers.0.metadata.treshold",
        "ScaledObject.spec.fallback.behaviour",
        "PodMonitor.spec.podMetricsEndpoint",
        "pod.terminationGracePeriod",
    ],
)
def test_a_field_that_does_not_exist_is_refused(path: str) -> None:
    objects = render_named("keda-values.yaml")
    change(objects, path, "30")
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate_all(objects, "1.36")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("variables.ATTENDANT_HOST.value", 8),
        ("Deployment.metadata.labels.version", 1),
        ("HorizontalPodAutoscaler.apiVersion", "autoscaling/v2beta2"),
    ],
)
def test_a_value_of_another_type_and_a_version_that_is_gone_are_refused(
    path: str, value: object
) -> None:
    objects = render_named("hpa-values.yaml")
    change(objects, path, value)
    refused = kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError
    with pytest.raises(refused):
        validate_all(objects, "1.36")
