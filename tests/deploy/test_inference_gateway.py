"""The example behind the Gateway API inference extension: its parts agree, and its metrics exist.

The fields of the picker's configuration are those of its documentation of October 2026.
"""

import re
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.generate.chart import ROOT, Object, read_values, render
from tests.deploy import objects, pod_rules
from tests.deploy.custom_resources import TEXT, closed, list_of, one_of, schema_of

FOLDER = ROOT / "deploy/inference-gateway"
POOL: Object = yaml.safe_load((FOLDER / "inferencepool.yaml").read_text("utf-8"))
VALUES: Object = yaml.safe_load((FOLDER / "endpoint-picker-values.yaml").read_text("utf-8"))
PICKER = VALUES["router"]["epp"]
CONFIG: Object = yaml.safe_load(PICKER["pluginsCustomConfig"][PICKER["pluginsConfigFile"]])
SPECS = ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "loraSpec", "cacheInfoSpec")
NO_PARAMETERS = {"type": "null"}
PLUGINS = {
    "metrics-data-source": closed(scheme=one_of("http", "https"), path=TEXT),
    "core-metrics-extractor": closed(
        defaultEngine=TEXT,
        engineConfigs=list_of(closed(name=TEXT, **dict.fromkeys(SPECS, TEXT))),
    ),
    "queue-scorer": NO_PARAMETERS,
    "kv-cache-utilization-scorer": NO_PARAMETERS,
    "prefix-cache-scorer": NO_PARAMETERS,
}


@pytest.fixture(scope="module")
def made() -> list[Object]:
    return render(read_values("inference-pool-values.yaml"), "gpt")


def engine() -> dict[str, Any]:
    (extractor,) = (one for one in CONFIG["plugins"] if one["type"] == "core-metrics-extractor")
    (found,) = extractor["parameters"]["engineConfigs"]
    assert found["name"] == extractor["parameters"]["defaultEngine"]
    return dict(found)


def test_the_pool_has_fields_that_the_extension_has() -> None:
    jsonschema.validate(POOL, schema_of(POOL["apiVersion"], POOL["kind"]))


def test_the_pool_is_the_chart_s_pods_at_their_http_port(made: list[Object]) -> None:
    spec = POOL["spec"]
    servers = VALUES["router"]["modelServers"]
    assert servers["matchLabels"] == spec["selector"]["matchLabels"]
    assert servers["targetPorts"] == spec["targetPorts"] == [{"number": pod_rules.HTTP_PORT}]
    assert objects.selects(spec["selector"]["matchLabels"], objects.labels_of(made))
    tests = objects.of_kind(made, "Pod")
    assert not any(
        objects.selects(spec["selector"]["matchLabels"], one["metadata"]["labels"]) for one in tests
    )


def test_the_route_leads_to_the_pool_and_the_picker_is_let_in(made: list[Object]) -> None:
    (route,) = objects.of_kind(made, "HTTPRoute")
    (policy,) = objects.of_kind(made, "NetworkPolicy")
    let_in = next(r for r in policy["spec"]["ingress"] if r["ports"][0]["port"] == "http")["from"]
    labels = {"llm-d-router-gateway": POOL["spec"]["endpointPickerRef"]["name"]}
    assert {"podSelector": {"matchLabels": labels}} in let_in
    assert route["spec"]["rules"][0]["backendRefs"] == [
        {
            "group": POOL["apiVersion"].partition("/")[0],
            "kind": POOL["kind"],
            "name": POOL["metadata"]["name"],
        }
    ]


def test_the_picker_s_configuration_names_plugins_that_it_has() -> None:
    assert (CONFIG["apiVersion"], CONFIG["kind"]) == ("llm-d.ai/v1alpha1", "EndpointPickerConfig")
    for plugin in CONFIG["plugins"]:
        jsonschema.validate(plugin.get("parameters"), PLUGINS[plugin["type"]])
    (profile,) = CONFIG["schedulingProfiles"]
    named = {one["pluginRef"] for one in profile["plugins"]}
    assert named <= {plugin["type"] for plugin in CONFIG["plugins"]}


def test_the_picker_reads_gauges_that_the_server_has() -> None:
    """A metric that is missing is logged once by the picker, and counts as no load."""
    text = (ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8")
    gauges = set(re.findall(r"^\| `(\w+)` \| gauge \|", text, re.MULTILINE))
    found = engine()
    read = {name: found[name].partition("{") for name in SPECS if found[name]}
    assert read.keys() == {"queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec"}
    for name, _, labels in read.values():
        assert name in gauges
        assert re.fullmatch(r'model="\w+"\}', labels)


def test_the_document_has_the_mapping() -> None:
    text = (ROOT / "docs/how-to/kubernetes.md").read_text(encoding="utf-8")
    for name in SPECS[:3]:
        assert f"`{engine()[name].partition('{')[0]}`" in text
