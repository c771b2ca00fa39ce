"""Values: the schema is closed everywhere, typos fail, and so does what makes no sense together."""

import json
import re
from collections.abc import Iterator
from typing import Any

import helm_python
import pytest
import yaml

from deploy.generate.chart import CHART, ROOT, Object, read_values, render

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
# Left out of values.yaml, since absent means computed; `global` is Helm's own.
COMPUTED = {
    "replicas",
    "drain.terminationGracePeriodSeconds",
    "drain.livenessGraceSeconds",
    "autoscaling.keda.fallbackReplicas",
    "podDisruptionBudget.maxUnavailable",
    "podDisruptionBudget.minAvailable",
    "resources.limits.cpu",
    "resources.limits.ephemeral-storage",
    "resources.requests.ephemeral-storage",
    "global",
}


def merged(base: Object, *changes: Object) -> Object:
    """Deeply, later ones winning, as Helm merges values."""
    result = dict(base)
    for change in changes:
        for name, value in change.items():
            old = result.get(name)
            both = isinstance(old, dict) and isinstance(value, dict)
            result[name] = merged(old, value) if both else value  # type: ignore[arg-type]
    return result


def nested(path: str, value: Any) -> Object:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value  # type: ignore[no-any-return]


def _schemas(schema: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every schema within a schema, with where it is."""
    if isinstance(schema, dict):
        yield path, schema
        for name, inner in schema.items():
            yield from _schemas(inner, f"{path}/{name}")
    elif isinstance(schema, list):
        for index, inner in enumerate(schema):
            yield from _schemas(inner, f"{path}/{index}")


def test_schema_is_closed_at_every_level() -> None:
    """An object either names its properties and has no others, or says what its values are."""
    open_ones = [
        path
        for path, schema in _schemas(SCHEMA)
        if schema.get("type") == "object" and not path.endswith("/global")
        if schema.get("additionalProperties") is not False
        and not isinstance(schema.get("additionalProperties"), dict)
    ]
    untyped = [
        path
        for path, schema in _schemas(SCHEMA)
        if path.split("/")[-2:-1] in (["properties"], ["$defs"])
        if not {"type", "$ref", "enum", "allOf", "anyOf"} & schema.keys()
    ]
    lists = [
        path
        for path, schema in _schemas(SCHEMA)
        if schema.get("type") == "array" and "items" not in schema
    ]
    assert (open_ones, untyped, lists) == ([], [], [])


def _sections(schema: Object, path: str = "") -> Iterator[tuple[str, Object]]:
    """Paths of the values' objects that name their properties."""
    if "properties" in schema:
        yield path, schema
        for name, inner in schema["properties"].items():
            yield from _sections(inner, f"{path}.{name}".strip("."))


SECTIONS = dict(_sections(SCHEMA))


@pytest.mark.parametrize("path", SECTIONS)
def test_a_typo_fails(path: str) -> None:
    typo = nested(f"{path}.tpyo".strip("."), 1)
    with pytest.raises(helm_python.HelmError, match="tpyo"):
        render(merged(read_values("baked-values.yaml"), typo))


def test_values_and_schema_name_the_same() -> None:
    """A value without a default would be hard to find."""
    documented = set()
    for path, schema in SECTIONS.items():
        for name, inner in schema["properties"].items():
            if "properties" not in inner and not path.endswith("settings"):
                documented.add(f"{path}.{name}".strip("."))

    def leaves(values: Object, path: str = "") -> Iterator[str]:
        for name, value in values.items():
            where = f"{path}.{name}".strip(".")
            if where in SECTIONS and value:
                yield from leaves(value, where)
            elif where not in SECTIONS:
                yield where

    assert set(leaves(DEFAULTS)) == documented - COMPUTED


def test_document_names_values_that_exist() -> None:
    text = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
    sections = "|".join(name for name in SECTIONS if name and "." not in name)
    named = set(re.findall(rf"[` ]((?:{sections})\.[\w.]+\w)[`=]", text))
    known = {f"{path}.{name}" for path, schema in SECTIONS.items() for name in schema["properties"]}
    assert len(named) > 30
    assert named - {"tls.crt", "tls.key"} <= known  # which are files


def test_parent_charts_may_pass_global_values() -> None:
    assert render(merged(read_values("baked-values.yaml"), {"global": {"region": "north"}}))


# What a complete installation says at least, in the words of `helm --set`.
CLAIM = "modelRepository.source=claim,modelRepository.claim.name=models"
NO_CLAIM = "modelRepository.claim.name="
KEYS = "auth.keySecretName=keys"

HTTP_ROUTE = (
    "gateway.http.enabled=true,gateway.http.parentRefs[0].name=public,"
    "gateway.http.hostnames[0]=a.example.com"
)

NONSENSE = [
    # the message, and what is set beside CLAIM
    ("source is not set", f"modelRepository.source=,{NO_CLAIM}"),
    ("claim.name is not set", NO_CLAIM),
    ("claim.name is set, and .*source is baked", "modelRepository.source=baked"),
    ("initImage.repository is not set", f"modelRepository.source=initImage,{NO_CLAIM}"),
    (
        "initImage has neither tag nor digest",
        f"modelRepository.source=initImage,modelRepository.initImage.repository=models,{NO_CLAIM}",
    ),
    ("image.tag is latest", "image.tag=latest"),
    ("Seconds is 40, expected at least 50", "drain.terminationGracePeriodSeconds=40"),
    (
        "Seconds is 50, expected at least 75",
        "drain.terminationGracePeriodSeconds=50,drain.preStopSeconds=30",
    ),
    ("livenessGraceSeconds is 5, expected more than", "drain.livenessGraceSeconds=5"),
    ("drain.timeoutSeconds is 30, expected at least", "server.longestDeadlineSeconds=60"),
    ("connectionGraceSeconds is 10, expected", "server.connectionGraceSeconds=10"),
    ("replicas is set, and .*mode is hpa", "autoscaling.mode=hpa,replicas=3"),
    ("replicas is set, and .*mode is hpa", "autoscaling.mode=hpa,replicas=0"),
    ("minReplicas is 20", "autoscaling.minReplicas=20"),
    ("fallbackReplicas is 99", "autoscaling.keda.fallbackReplicas=99"),
    ("serverAddress is not set", "autoscaling.mode=keda"),
    ("needs a selector", "autoscaling.hpa.metric.type=External"),
    ("that of Pods has none", "autoscaling.hpa.metric.selector.a=b"),
    ("new pods would not have", "autoscaling.mode=hpa,server.modelControlMode=explicit"),
    ("never changes", f"server.modelControlMode=poll,modelRepository.source=baked,{NO_CLAIM}"),
    ("minModels is 1, and .* explicit without", "server.modelControlMode=explicit"),
    ("minModels is 2, expected at most the number", r"server.models={a},server.minModels=2"),
    (
        "limits.memory is 5Gi, expected at least resources.requests.memory, 6000Mi",
        "resources.requests.memory=6000Mi",
    ),
    ("limits.cpu is 1500m, expected at least", "resources.limits.cpu=1500m"),
    (
        "limits.memory is 2Gi, expected more than the keys and values .* 2147483648 bytes",
        "resources.limits.memory=2Gi,resources.requests.memory=1Gi",
    ),
    ("which may take 5368709120 bytes", "server.settings.kv-cache-bytes=5368709120"),
    (
        "image.digest is of the CPU image",
        f"gpu.enabled=true,image.digest=sha256:{'0' * 64}",
    ),
    ("gpu.enabled adds -cuda to it", "gpu.enabled=true,image.repository=attendant-cuda"),
    ("gpu.enabled is false: expected the CPU image", "image.repository=attendant-cuda"),
    ("gpu.image is set", "gpu.image.tag=0.1.0"),
    ("gpu.image.tag is latest", "gpu.enabled=true,gpu.image.tag=latest"),
    (
        "both set, expected one",
        "podDisruptionBudget.maxUnavailable=1,podDisruptionBudget.minAvailable=1",
    ),
    ("commonLabels has the label helm.sh/chart", r"commonLabels.helm\.sh/chart=mine"),
    (
        "podLabels has the label app.kubernetes.io/name",
        r"podLabels.app\.kubernetes\.io/name=mine",
    ),
    ("podLabels has the label team", "commonLabels.team=a,podLabels.team=b"),
    ("metrics.labels has the label team", "commonLabels.team=a,metrics.labels.team=b"),
    (
        "podAnnotations has the annotation prometheus.io/path",
        r"podAnnotations.prometheus\.io/path=/other",
    ),
    (
        "extraVolumes has the volume tmp",
        "extraVolumes[0].name=tmp,extraVolumes[0].emptyDir.medium=Memory",
    ),
    (
        "extraVolumeMounts has the path /models",
        "extraVolumeMounts[0].name=x,extraVolumeMounts[0].mountPath=/models",
    ),
    (
        "sidecars has the container attendant",
        "sidecars[0].name=attendant,sidecars[0].image=proxy:1,sidecars[0].resources.limits.memory=1Gi",
    ),
    ("a pod has one", "runtimeClassName=gvisor,gpu.enabled=true,gpu.runtimeClassName=nvidia"),
    ("type is ClusterIP", "service.clusterIP.loadBalancerClass=internal"),
    ("clusterIP.enabled is false", "service.clusterIP.type=LoadBalancer"),
    ("service.clusterIP.type is ClusterIP", "service.clusterIP.externalTrafficPolicy=Local"),
    ("adminFrom is empty", "admin.enabled=true"),
    ("admin.enabled is false", "networkPolicy.adminFrom[0].podSelector.matchLabels.app=deployer"),
    ("gpu.enabled is false", "gpu.runtimeClassName=nvidia"),
    ("gpu.enabled is false", "gpu.surge=true"),
    (
        "one part of a GPU",
        "gpu.enabled=true,gpu.count=2,gpu.resource=nvidia.com/mig-1g.10gb",
    ),
    ("one part of a GPU", "gpu.enabled=true,gpu.count=2,gpu.resource=nvidia.com/gpu.shared"),
    ("tls.secretName is not", "tls.serverName=example.com"),
    ("probes are clients too", "tls.secretName=server,tls.clientCaSecretName=ca"),
    ("must both be set", "auth.restrictedProtocols=trace:k=@/etc/k"),
    ("must both be set", KEYS),
    ("probes have no key", KEYS + r",auth.restrictedProtocols=trace\,health:k=@/etc/k"),
    ("lets nothing out", "server.settings.otlp-endpoint=http://collector:4317"),
    ("Service with an address", "gateway.enabled=true,gateway.parentRefs[0].name=public"),
    ("jobs are named after serving", "metrics.rules=true,fullnameOverride=serving"),
    ("parentRefs is empty", "gateway.enabled=true,service.clusterIP.enabled=true"),
    ("gateway.http.parentRefs is empty", "gateway.http.enabled=true"),
    ("or gateway.http.inferencePool", HTTP_ROUTE),
    (
        "does not name every host",
        f"{HTTP_ROUTE},gateway.http.hostnames[0]=*.example.com,gateway.http.inferencePool=pool",
    ),
    (
        "a listener takes a GRPCRoute or an HTTPRoute",
        f"{HTTP_ROUTE},service.clusterIP.enabled=true,gateway.enabled=true,"
        "gateway.parentRefs[0].name=public,gateway.hostnames[0]=a.example.com",
    ),
    (
        "both lead to a listener of public",
        f"{HTTP_ROUTE},service.clusterIP.enabled=true,gateway.enabled=true,"
        "gateway.parentRefs[0].name=public,gateway.parentRefs[0].sectionName=grpc",
    ),
]


def parse(words: str) -> Object:
    return dict(helm_python.parse_set_string(words))


@pytest.mark.parametrize(("message", "words"), NONSENSE)
def test_nonsense_across_values_fails(message: str, words: str) -> None:
    assert render(parse(CLAIM))
    with pytest.raises(helm_python.HelmError, match=message):
        render(merged(parse(CLAIM), parse(words)))


WRONG: list[tuple[str, object]] = [
    ("image.digest", "sha256:abc"),
    ("image.tag", "a tag"),
    ("image.pullPolicy", "Sometimes"),
    ("replicas", -1),
    ("replicas", "3"),
    ("autoscaling.minReplicas", 0),
    ("autoscaling.mode", "vpa"),
    ("autoscaling.targetPercent", 150),
    ("resources.limits", {"cpu": "2", "memory": None}),
    ("resources.requests.cpu", "two"),
    ("resources.requests.memory", "4GB"),
    ("securityContext.runAsUser", 0),
    ("server.settings", {"max-queue-requests": 0}),
    ("server.settings", {"max-queue-requests": "many"}),
    ("server.settings", {"max-queue-request": 1}),
    ("server.settings", {"drain-timeout-s": 1}),
    ("server.env", {"ATTENDANT_DRAIN_TIMEOUT_S": "1"}),
    ("server.env", {"TOKEN": {"secretRef": {"name": "a"}}}),
    ("server.envFrom", [{"secretRef": {"name": "a"}, "configMapRef": {"name": "b"}}]),
    ("server.models", ["a,b"]),
    ("extraVolumes", [{"name": "root", "hostPath": {"path": "/"}}]),
    ("extraVolumeMounts", [{"name": "root", "mountPath": "relative"}]),
    ("sidecars", [{"name": "proxy", "image": "proxy:1", "resources": {}, "privileged": True}]),
    ("initContainers", [{"name": "proxy", "image": "proxy:1"}]),
    ("affinity", {"podAffinities": {}}),
    ("service.clusterIP.type", "ExternalName"),
    ("podDisruptionBudget.minAvailable", "half"),
    ("autoscaling.behavior.scaleUp.policies", [{"type": "Pods", "value": 2}]),
    ("gateway.matches", [{"path": "/"}]),
    ("gateway.http.matches", [{"path": "/v1"}]),
    ("gateway.http.matches", [{"method": {"service": "inference.GRPCInferenceService"}}]),
    ("runtimeClassName", "G Visor"),
    ("server.modelControlMode", "push"),
    ("networkPolicy.grpcFrom", [{}]),
    ("networkPolicy.grpcFrom", [{"podSelektor": {}}]),
    ("tolerations", [{"key": "a", "operater": "Exists"}]),
    ("gateway.parentRefs", [{"namespace": "gateways"}]),
    ("auth.restrictedProtocols", "trace:key=secret"),
    ("topologySpread.zone", "Always"),
]


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{p}={v}" for p, v in WRONG])
def test_a_wrong_value_fails(path: str, value: object) -> None:
    with pytest.raises(helm_python.HelmError, match="specifications of the schema"):
        render(merged(parse(CLAIM), nested(path, value)))
