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
SERVICE = _read("inferenceservice.yaml")
PREDICTOR = SERVICE["spec"]["predictor"]
(CONTAINER,) = RUNTIME["spec"]["containers"]


@pytest.mark.parametrize("one", [RUNTIME, SERVICE], ids=lambda one: one["kind"])
def test_fields_are_those_that_kserve_has(one: Object) -> None:
    jsonschema.validate(one, schema_of(one["apiVersion"], one["kind"]))


def test_pod_that_kserve_makes_is_valid_and_safe() -> None:
    """Of the runtime's container and the service's pod, as KServe merges them."""
    of_pod = ("automountServiceAccountToken", "enableServiceLinks", "terminationGracePeriodSeconds",
              "securityContext", "topologySpreadConstraints")  # fmt: skip
    pod = {name: PREDICTOR[name] for name in of_pod} | {
        "containers": [CONTAINER],
        "volumes": RUNTIME["spec"]["volumes"],
    }
    one = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "predictor"}, "spec": pod}
    kubernetes_validate.validate(one, "1.36", strict=True)
    user = CONTAINER["securityContext"]["runAsUser"]  # KServe's own containers have another
    own = {k: v for k, v in CONTAINER["securityContext"].items() if k != "runAsUser"}
    pod["securityContext"] = pod["securityContext"] | {"runAsUser": user}
    pod["containers"] = [CONTAINER | {"securityContext": own}]
    assert pod_rules.pod_security([one]) == []


def test_it_runs_as_the_chart_runs_it() -> None:
    """Probes, drain, port and image agree with the chart's, so that one document describes both."""
    ours = objects.server_of(render_named("baked-values.yaml"))
    for name in ("startupProbe", "readinessProbe", "livenessProbe", "lifecycle"):
        assert CONTAINER[name] == ours[name], name
    assert CONTAINER["ports"][0]["containerPort"] == pod_rules.GRPC_PORT
    theirs, chart = objects.variables(CONTAINER), objects.variables(ours)
    for name in (
        "HOST",
        "METRICS_HOST",
        "DRAIN_DELAY_S",
        "DRAIN_TIMEOUT_S",
        "DEVICE",
        "MIN_MODELS",
    ):
        assert theirs[f"ATTENDANT_{name}"] == chart[f"ATTENDANT_{name}"], name
    grace_s = objects.pod_of(render_named("baked-values.yaml"))["terminationGracePeriodSeconds"]
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
