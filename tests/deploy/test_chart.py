"""What the chart makes of several values: valid for Kubernetes, and true to each rule."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import helm_python
import jsonschema
import kubernetes_validate
import pytest
import yaml

from deploy.generate.chart import (
    CHART,
    NAMESPACE,
    ROOT,
    VALUES,
    Object,
    read_values,
    render,
    render_files,
    render_named,
)
from service.settings import Settings
from tests.deploy import objects, rules
from tests.deploy.custom_resources import SPECS, schema_of

KUBERNETES = ("1.30", "1.36")  # the oldest that the chart admits, and the newest that we know
every_values = pytest.mark.parametrize("values", VALUES)


def validate(one: Object, version: str) -> None:
    """Strictly: fields that the schema does not know are errors."""
    key = one["apiVersion"], one["kind"]
    if key in SPECS:
        jsonschema.validate(one, schema_of(*key))
    else:
        kubernetes_validate.validate(one, version, strict=True)


def validate_all(made: list[Object], version: str) -> None:
    for one in made:
        validate(one, version)


@every_values
@pytest.mark.parametrize("version", KUBERNETES)
def test_every_object_is_valid_for_kubernetes(values: str, version: str) -> None:
    has_image_volume = read_values(values)["modelRepository"]["source"] == "imageVolume"
    if has_image_volume and version < "1.33":
        return  # Kubernetes has none yet, and the chart refuses them
    validate_all(render_named(values), version)


@pytest.mark.parametrize("values", [*VALUES, None])
def test_helm_has_nothing_to_say(values: str | None) -> None:
    """Of the chart alone neither, though it must be told where models come from to be installed."""
    report = helm_python.lint(CHART, read_values(values) if values else {}, strict=True)
    told = [one["error"] for one in report["messages"] if "icon" not in one["error"]]
    assert (told, report["errors"]) == ([], [])


@every_values
@pytest.mark.parametrize("rule", rules.RULES)
def test_an_installation_keeps_every_rule(values: str, rule: str) -> None:
    """What a rule is for is in its docstring; `test_rules.py` breaks each of them on purpose."""
    assert rules.RULES[rule](render_named(values)) == []


@pytest.mark.parametrize(
    "release", ["a", "attendant", "a-release-of-the-fifty-three-letters-that-helm-allows"]
)
def test_any_release_name_makes_good_names(release: str) -> None:
    values = read_values("guarded-values.yaml")
    values["metrics"]["rules"] = len(release) < 40  # alerts want `attendant`, which longer ones cut
    made = render(values, release)
    assert [rule(made) for rule in rules.RULES.values()] == [[]] * len(rules.RULES)


def test_cpus_are_not_limited_by_default() -> None:
    server = objects.server_of(render_named("baked-values.yaml"))
    assert "cpu" not in server["resources"]["limits"]


def test_values_files_cover_every_choice() -> None:
    """Else the rules above would hold for want of trying."""
    everything = [one for values in VALUES for one in render_named(values)]
    kinds = {one["kind"] for one in everything}
    assert kinds >= {
        "ConfigMap", "Deployment", "GRPCRoute", "HTTPRoute", "HorizontalPodAutoscaler",
        "NetworkPolicy", "Pod", "PodDisruptionBudget", "PodMonitor", "PrometheusRule",
        "ScaledObject", "Service", "ServiceAccount", "ServiceMonitor",
    }  # fmt: skip
    sources = {read_values(values)["modelRepository"]["source"] for values in VALUES}
    assert sources == {"claim", "initImage", "baked", "imageVolume"}


@every_values
def test_server_is_given_settings_that_it_has(values: str) -> None:
    """And each once: of two variables with one name the last would win silently."""
    flags = {f"ATTENDANT_{setting.name.upper()}" for setting in fields(Settings)}
    names = [one["name"] for one in objects.server_of(render_named(values))["env"]]
    own = {name for name in names if name.startswith("ATTENDANT_")}
    assert {name for name in own - flags if "_CLIENT_" not in name} == set()
    assert len(names) == len(set(names))


def test_settings_reach_the_server_as_they_were_written() -> None:
    variables = objects.variables(objects.server_of(render_named("hpa-values.yaml")))
    names = "MAX_QUEUE_REQUESTS", "MAX_BYTES_IN_FLIGHT", "PREFIX_REUSE", "SERVER_NAME"
    given = {name: variables[f"ATTENDANT_{name}"] for name in names}
    assert given == {
        "MAX_QUEUE_REQUESTS": "64",
        "MAX_BYTES_IN_FLIGHT": "1073741824",
        "PREFIX_REUSE": "false",
        "SERVER_NAME": "triton",
    }


def test_large_numbers_are_not_written_with_an_exponent() -> None:
    values = read_values("baked-values.yaml") | {"securityContext": {"runAsUser": 1_000_650_000}}
    assert objects.pod_of(render(values))["securityContext"]["runAsUser"] == 1_000_650_000


@pytest.mark.parametrize(
    ("slots", "percent", "target"), [(16, 75, "12"), (32, 75, "24"), (1, 50, "1")]
)
def test_scaling_target_is_a_share_of_the_slots(slots: int, percent: int, target: str) -> None:
    values = read_values("hpa-values.yaml")
    values["autoscaling"] |= {"slotsPerReplica": slots, "targetPercent": percent}
    (scaler,) = objects.of_kind(render(values), "HorizontalPodAutoscaler")
    assert scaler["spec"]["metrics"][0]["pods"]["target"]["averageValue"] == target


@pytest.mark.parametrize(
    "release", ["demo", "a-release-of-the-fifty-three-letters-that-helm-allows"]
)
def test_keda_asks_for_the_pods_of_this_release_only(release: str) -> None:
    """By names as Kubernetes makes them: of the ReplicaSet's and a dash 58 characters, and 5."""
    made = render(read_values("keda-values.yaml"), release)
    (scaler,) = objects.of_kind(made, "ScaledObject")
    query = scaler["spec"]["triggers"][0]["metadata"]["query"]
    (pods,) = set(re.findall(r"\{(.+?)\}(?:\)|$)", query))
    namespace, pattern = re.fullmatch(r'namespace="(.+)",pod=~"(.+)"', pods).groups()  # type: ignore[union-attr]
    name = objects.deployment(made)["metadata"]["name"]
    assert namespace == NAMESPACE
    assert re.fullmatch(pattern, f"{name}-5d4f8c7b69-"[:58] + "x2x9z")
    assert not re.fullmatch(pattern, f"{name}-other-5d4f8c7b69-x2x9z")


def test_rules_and_dashboards_arrive_whole() -> None:
    """Their templates, {{ $labels.model }}, are Prometheus' and Grafana's, not Helm's."""
    made = render_named("guarded-values.yaml")
    (rule,) = objects.of_kind(made, "PrometheusRule")
    source = (ROOT / "deploy/prometheus/rules/attendant.yml").read_text(encoding="utf-8")
    assert rule["spec"] == yaml.safe_load(source)
    given = {
        name: json.loads(text)
        for one in objects.of_kind(made, "ConfigMap")
        for name, text in one["data"].items()
    }
    dashboards = (ROOT / "deploy/grafana/dashboards").glob("*.json")
    assert given == {path.name: json.loads(path.read_text("utf-8")) for path in dashboards}


def test_what_helm_install_prints_names_both_ports() -> None:
    notes = render_files(read_values("guarded-values.yaml"))["NOTES.txt"]
    assert "dns:///demo-attendant.serving.svc:8001, HTTP at port 8000" in notes
    assert "demo-attendant-balanced.serving.svc:8001, and clients of HTTP its port 8000" in notes


def test_helm_test_asks_the_service_with_the_certificate_alone() -> None:
    (pod,) = objects.of_kind(render_named("guarded-values.yaml"), "Pod")
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    arguments = [one["args"] for one in pod["spec"]["containers"]]
    assert [one[0] for one in arguments] == ["healthcheck", "healthcheck"]
    assert [one[-1] for one in arguments] == ["demo-attendant:8001", "https://demo-attendant:8000"]
    variables = [objects.variables(one) for one in pod["spec"]["containers"]]
    assert variables[0] == variables[1]
    (tls,) = (one["secret"] for one in pod["spec"]["volumes"] if one["name"] == "tls")
    assert tls["items"] == [{"key": "tls.crt", "path": "tls.crt"}]


def test_helm_test_is_let_through_the_network_policy() -> None:
    made = render_named("guarded-values.yaml")
    (pod,) = objects.of_kind(made, "Pod")
    (policy,) = objects.of_kind(made, "NetworkPolicy")
    asked = [r for r in policy["spec"]["ingress"] if r["ports"][0]["port"] in ("grpc", "http")]
    assert len(asked) == 2
    for rule in asked:
        peers = [one["podSelector"]["matchLabels"] for one in rule["from"] if "podSelector" in one]
        assert any(labels.items() <= pod["metadata"]["labels"].items() for labels in peers)


@pytest.mark.parametrize(
    ("policy", "is_trusted"),
    [({}, True), ({"enabled": False}, False), ({"grpcFrom": []}, False)],
)
def test_the_server_warns_of_open_ports_unless_the_network_policy_guards_them(
    policy: Object, is_trusted: bool
) -> None:
    """Under the chart's own defaults the server starts without a warning."""
    values = read_values("baked-values.yaml") | {"networkPolicy": policy}
    given = objects.variables(objects.server_of(render(values)))
    assert given["ATTENDANT_TRUSTED_NETWORK"] == str(is_trusted).lower()


# --- Options beyond the chart's defaults.


@pytest.fixture(scope="module")
def ways_out() -> list[Object]:
    return render_named("ways-out-values.yaml")


def test_variables_come_from_secrets_and_fields_too(ways_out: list[Object]) -> None:
    server = objects.server_of(ways_out)
    given = objects.variables(server)
    assert given["OTEL_EXPORTER_OTLP_HEADERS"] == {
        "secretKeyRef": {"name": "collector", "key": "headers"}
    }
    assert given["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert given["OTEL_RESOURCE_ATTRIBUTES"] == "deployment.environment.name=live"
    assert server["envFrom"][0] == {"secretRef": {"name": "collector"}}


def test_a_part_of_the_repository_is_served_where_models_are_named(ways_out: list[Object]) -> None:
    given = objects.variables(objects.server_of(ways_out))
    assert given["ATTENDANT_LOAD_MODELS"] == "spam,minilm"
    others = objects.variables(objects.server_of(render_named("baked-values.yaml")))
    assert "ATTENDANT_LOAD_MODELS" not in others


def test_volumes_and_containers_of_ones_own_are_there_and_hardened(ways_out: list[Object]) -> None:
    """Those that say nothing have the server's security context; what they say stays."""
    pod = objects.pod_of(ways_out)
    assert [one["name"] for one in pod["initContainers"]] == ["verify", "models"]
    assert [one["name"] for one in pod["containers"]] == ["attendant", "proxy"]
    hardened = objects.server_of(ways_out)["securityContext"]
    assert pod["initContainers"][0]["securityContext"] == hardened
    assert pod["containers"][1]["securityContext"] == hardened | {"runAsNonRoot": True}
    assert {"authorities", "scratch"} <= {one["name"] for one in pod["volumes"]}
    paths = [one["mountPath"] for one in objects.server_of(ways_out)["volumeMounts"]]
    assert "/etc/ssl/private-authorities" in paths


def test_pods_are_placed_as_told(ways_out: list[Object]) -> None:
    pod = objects.pod_of(ways_out)
    assert pod["affinity"].keys() == {"podAntiAffinity"}
    assert (pod["runtimeClassName"], pod["schedulerName"]) == ("gvisor", "volcano")
    with_gpu = objects.pod_of(render_named("keda-values.yaml"))
    assert with_gpu["runtimeClassName"] == "nvidia"


def test_common_labels_are_on_everything_and_select_nothing(ways_out: list[Object]) -> None:
    for one in ways_out:
        assert one["metadata"]["labels"]["example.com/cost-centre"] == "4711", one["kind"]
        assert "example.com/cost-centre" not in json.dumps(one.get("spec", {}).get("selector", {}))
    assert objects.labels_of(ways_out)["example.com/cost-centre"] == "4711"


def test_budget_scaling_and_route_are_as_told(ways_out: list[Object]) -> None:
    (budget,) = objects.of_kind(ways_out, "PodDisruptionBudget")
    assert "maxUnavailable" not in budget["spec"]
    assert budget["spec"]["minAvailable"] == "50%"
    (route,) = objects.of_kind(ways_out, "GRPCRoute")
    assert [match["method"]["service"] for match in route["spec"]["rules"][0]["matches"]] == [
        "inference.GRPCInferenceService",
        "attendant.v1.TextService",
    ]
    (http,) = objects.of_kind(ways_out, "HTTPRoute")
    (rule,) = http["spec"]["rules"]
    assert [match["path"]["value"] for match in rule["matches"]] == ["/v1", "/v2/models/spam/infer"]
    assert rule["backendRefs"] == [{"name": "demo-attendant-balanced", "port": 8000}]
    (scaler,) = objects.of_kind(render_named("hpa-values.yaml"), "HorizontalPodAutoscaler")
    assert scaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 600
    assert len(scaler["spec"]["behavior"]["scaleDown"]["policies"]) == 2


@pytest.mark.parametrize(
    ("settings", "hosts"),
    [({}, "models.example.com,api.example.com"), ({"http-allowed-hosts": "mine"}, "mine")],
)
def test_the_server_takes_the_host_names_of_its_http_route(settings: Object, hosts: str) -> None:
    """By default it refuses names that it does not know; a setting of one's own is kept."""
    values = read_values("ways-out-values.yaml")
    values["server"]["settings"] = settings
    given = objects.variables(objects.server_of(render(values)))
    assert given["ATTENDANT_HTTP_ALLOWED_HOSTS"] == hosts


def test_with_tokens_the_server_takes_any_host_and_a_route_may_have_patterns() -> None:
    values = read_values("guarded-values.yaml")
    values["gateway"]["http"]["hostnames"] = ["*.example.com"]
    given = objects.variables(objects.server_of(render(values)))
    assert "ATTENDANT_HTTP_ALLOWED_HOSTS" not in given


def test_without_an_http_route_the_server_has_its_own_default_of_hosts() -> None:
    given = objects.variables(objects.server_of(render_named("baked-values.yaml")))
    assert "ATTENDANT_HTTP_ALLOWED_HOSTS" not in given


def test_a_route_to_an_inference_pool_needs_no_service_with_an_address() -> None:
    made = render_named("inference-pool-values.yaml")
    assert list(objects.specs(made, "Service")) == ["demo-attendant"]
    (route,) = objects.of_kind(made, "HTTPRoute")
    assert route["spec"]["rules"][0]["backendRefs"][0]["kind"] == "InferencePool"


def test_the_service_with_an_address_may_be_a_load_balancer(ways_out: list[Object]) -> None:
    balanced = objects.specs(ways_out, "Service")["demo-attendant-balanced"]
    assert balanced["type"] == "LoadBalancer"
    assert balanced["loadBalancerClass"] == "example.com/internal"
    assert [port["name"] for port in balanced["ports"]] == ["grpc", "http"]


def test_the_port_for_administration_has_its_service_and_its_callers(
    ways_out: list[Object],
) -> None:
    """On the Services of clients it is not, and only those named reach it."""
    services = objects.specs(ways_out, "Service")
    ports = {name: [port["name"] for port in one["ports"]] for name, one in services.items()}
    assert ports == {
        "demo-attendant": ["grpc", "http", "metrics"],
        "demo-attendant-balanced": ["grpc", "http"],
        "demo-attendant-admin": ["admin"],
    }
    (policy,) = objects.of_kind(ways_out, "NetworkPolicy")
    (rule,) = (one for one in policy["spec"]["ingress"] if one["ports"][0]["port"] == "admin")
    assert rule["from"] == [{"podSelector": {"matchLabels": {"app": "deployer"}}}]
    assert objects.variables(objects.server_of(ways_out))["ATTENDANT_ADMIN_PORT"] == "8003"


@pytest.mark.parametrize(
    ("gpu", "image"),
    [
        ({}, "registry.example.com/attendant-with-models:0.1.0"),
        ({"enabled": True}, "registry.example.com/attendant-with-models-cuda:0.1.0"),
        ({"enabled": True, "image": {"repository": "mine", "tag": "cuda"}}, "mine:cuda"),
    ],
)
def test_with_gpus_the_cuda_image_is_taken(gpu: Object, image: str) -> None:
    made = render(read_values("baked-values.yaml") | {"gpu": gpu})
    assert objects.server_of(made)["image"] == image
    (test,) = objects.of_kind(made, "Pod")
    assert test["spec"]["containers"][0]["image"] == image


def test_a_version_with_a_build_number_makes_good_labels_and_tags(tmp_path: Path) -> None:
    """`0.1.0+build.5` is a version, and neither a label's value nor a tag may have a plus."""
    copy = tmp_path / "attendant"
    shutil.copytree(CHART, copy)
    chart = (copy / "Chart.yaml").read_text(encoding="utf-8")
    (copy / "Chart.yaml").write_text(chart.replace("0.1.0", "0.1.0+build.5"), encoding="utf-8")
    made = render(read_values("plain-values.yaml"), chart=copy)
    assert rules.admissible(made) == []
    assert objects.server_of(made)["image"] == "attendant:0.1.0_build.5"


def test_the_chart_knows_the_server_s_default_of_the_cache() -> None:
    """It holds the memory limit against it."""
    template = (CHART / "templates/_checks.tpl").read_text(encoding="utf-8")
    match = re.search(r'"kv-cache-bytes" \| default (\d+)', template)
    assert match is not None
    assert int(match[1]) == Settings().kv_cache_bytes
