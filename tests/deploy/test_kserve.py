"""KServe's made: known fields only, and the same promises as the chart's Deployment."""

import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.generate.chart import ROOT, Object, render_named
from tests.deploy import objects, pod_rules
from tests.deploy.custom_resources import schema_of

FOLDER = ROOT / "deploy/kserve"


def _read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


RUNTIME = _read("clusterservingruntime.yaml")
CUDA_RUNTIME = _read("clusterservingruntime-cuda.yaml")
HTTP_RUNTIME = _read("clusterservingruntime-http.yaml")
SERVICE = _read("inferenceservice.yaml")
PREDICTOR = SERVICE["spec"]["predictor"]
(CONTAINER,) = RUNTIME["spec"]["containers"]
EVERYTHING = [RUNTIME, CUDA_RUNTIME, HTTP_RUNTIME, SERVICE]
each_runtime = pytest.mark.parametrize(
    ("runtime", "values"),
    [
        (RUNTIME, "baked-values.yaml"),
        (CUDA_RUNTIME, "plain-gpu-values.yaml"),
        (HTTP_RUNTIME, "baked-values.yaml"),
    ],
    ids=["cpu", "cuda", "http"],
)


@pytest.mark.parametrize(
    "one", EVERYTHING, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}"
)
def test_fields_are_those_that_kserve_has(one: Object) -> None:
    jsonschema.validate(one, schema_of(one["apiVersion"], one["kind"]))


@each_runtime
def test_pod_that_kserve_makes_is_valid_and_safe(runtime: Object, values: str) -> None:
    """Of the runtime's container and the service's pod, as KServe merges them."""
    of_pod = ("automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds",
              "securityContext", "topologySpreadConstraints")  # fmt: skip
    (container,) = runtime["spec"]["containers"]
    pod = {name: PREDICTOR[name] for name in of_pod} | {
        "containers": [container],
        "volumes": runtime["spec"]["volumes"],
        "tolerations": runtime["spec"].get("tolerations", []),
    }
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": pod}
    kubernetes_validate.validate(one, "1.36", strict=True)
    user = container["securityContext"]["runAsUser"]  # KServe's own containers have another
    own = {k: v for k, v in container["securityContext"].items() if k != "runAsUser"}
    pod["securityContext"] = pod["securityContext"] | {"runAsUser": user}
    pod["containers"] = [container | {"securityContext": own}]
    assert pod_rules.pod_security([one]) == []


@each_runtime
def test_it_runs_as_the_chart_runs_it(runtime: Object, values: str) -> None:
    """Probes, drain, port and device agree with the chart's: one document describes both."""
    (container,) = runtime["spec"]["containers"]
    ours = objects.server_of(render_named(values))
    for name in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle", "resources"):
        assert container[name] == ours[name], name
    ports = {"h2c": pod_rules.GRPC_PORT, "http1": pod_rules.HTTP_PORT}
    assert {one["name"]: one["containerPort"] for one in container["ports"]} == ports
    (protocol,) = runtime["spec"]["protocolVersions"]
    assert container["ports"][0]["name"] == {"grpc-v2": "h2c", "v2": "http1"}[protocol]
    theirs, chart = objects.variables(container), objects.variables(ours)
    for name in (
        "HOST",
        "METRICS_HOST",
        "DRAIN_DELAY_S",
        "DRAIN_TIMEOUT_S",
        "DEVICE",
        "MIN_MODELS",
    ):
        assert theirs[f"ATTENDANT_{name}"] == chart[f"ATTENDANT_{name}"], name
    pod = objects.pod_of(render_named(values))
    assert runtime["spec"].get("tolerations") == pod.get("tolerations")
    grace_s = pod["terminationGracePeriodSeconds"]
    assert PREDICTOR["terminationGracePeriodSeconds"] == grace_s


def test_example_uses_the_runtime_and_scales_on_one_number() -> None:
    model = PREDICTOR["model"]
    assert model["runtime"] == RUNTIME["metadata"]["name"]
    assert model["modelFormat"] in [
        {"name": one["name"], "version": one["version"]}
        for one in RUNTIME["spec"]["supportedModelFormats"]
    ]
    assert model["protocolVersion"] in RUNTIME["spec"]["protocolVersions"]
    query = PREDICTOR["autoScaling"]["metrics"][0]["external"]["metric"]["query"]
    terms = re.findall(r"sum\((attendant_requests_\w+)\{.+?\}\)", query)
    assert terms == ["attendant_requests_waiting", "attendant_requests_running"]
