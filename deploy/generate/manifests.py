"""Write the plain manifests, and the chart's copies of other files: `make manifests`.

The copies are rules, dashboards, and the server's settings in the chart's schema. A test fails
where a file is stale. docs/how-to/cuda.md says what was verified on CUDA.
"""

import json
from collections.abc import Iterator
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import yaml

from deploy.generate.chart import CHART, ROOT, Object, read_values, render, render_files
from service.settings import Settings

# The folder of plain manifests that each values file makes.
PLAIN = {"kubernetes": "plain-values.yaml", "kubernetes/gpu": "plain-gpu-values.yaml"}
PLAIN_NAMESPACE = "attendant"
COPIES = {"rules": "prometheus/rules/attendant.yml", "dashboards": "grafana/dashboards/*.json"}
# What only Helm's releases have, and no other label or annotation.
OF_HELM = {"app.kubernetes.io/managed-by", "helm.sh/chart"}
KSERVE = ROOT / "deploy/kserve/clusterservingruntime.yaml"
KSERVE_CUDA = KSERVE.with_name("clusterservingruntime-cuda.yaml")
KSERVE_HTTP = KSERVE.with_name("clusterservingruntime-http.yaml")
HEADER = "# Rendered from deploy/helm/attendant/ci/{} by `make manifests`.{}\n"

KSERVE_CUDA_HEADER = """\
# Rendered from clusterservingruntime.yaml and the chart by `make manifests`.
# Unverified on CUDA (2026-11-23). An InferenceService with this runtime needs maxSurge 0 and
# maxUnavailable 1: a new pod would wait for the GPU of an old one.
"""
KSERVE_HTTP_HEADER = """\
# Rendered from clusterservingruntime.yaml by `make manifests`: KServe's gateway leads to HTTP, the
# v2 protocol as REST, and gRPC is at port 8001 of its Service.
"""
NEEDS = """\
#
# What they need and do not make; docs/how-to/kubernetes.md says how to make it:
#   the image {image}, under a name that nodes can pull: set `images` in a kustomization of yours
#   the PersistentVolumeClaim {claim} in the namespace {namespace}, with models in it
"""
CLAIM = "persistentVolumeClaim"

# Settings that the chart decides by other values, since its objects depend on them.
DECIDED = {
    "model_repository", "host", "grpc_port", "http_host", "http_port", "metrics_host",
    "metrics_port", "model_control_mode",
    "device", "num_threads", "drain_delay_s", "drain_timeout_s", "max_connection_age_s",
    "connection_grace_s", "tls_cert", "tls_key", "tls_client_ca", "token_file",
    "restricted_protocols", "min_models", "trusted_network", "load_models", "admin_host",
    "admin_port",
}  # fmt: skip
JSON_TYPES: dict[object, str] = {bool: "boolean", int: "integer", float: "number"}


def made_files() -> dict[Path, str]:
    """Contents by path of all that is made."""
    files = {CHART / "values.schema.json": _schema()}
    for folder, pattern in COPIES.items():
        for path in (ROOT / "deploy").glob(pattern):
            files[CHART / "files" / folder / path.name] = path.read_text(encoding="utf-8")
    for folder, values in PLAIN.items():
        for name, text in _plain(values):
            files[ROOT / "deploy" / folder / name] = text
    files[KSERVE_CUDA] = _kserve_cuda()
    files[KSERVE_HTTP] = _kserve_http()
    return files


def write() -> None:
    """All in one pass: the plain manifests depend on neither settings nor copies."""
    for path, text in made_files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _schema() -> str:
    """The chart's schema, with the server's settings as they are now."""
    path = CHART / "values.schema.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    settings = schema["properties"]["server"]["properties"]["settings"]
    settings["properties"] = {
        setting.name.replace("_", "-"): _property(setting)
        for setting in fields(Settings)
        if setting.name not in DECIDED
    }
    return json.dumps(schema, indent=2) + "\n"


def _property(setting: Field[Any]) -> dict[str, Any]:
    bounds = {"minimum": setting.metadata["low"], "maximum": setting.metadata["high"]}
    return {
        "type": JSON_TYPES.get(setting.type, "string"),
        "description": setting.metadata["help"],
        **{name: bound for name, bound in bounds.items() if bound is not None},
    }


def _plain(values: str) -> Iterator[tuple[str, str]]:
    """Names and texts of one folder: an object a file, its namespace, and the kustomization."""
    rendered = render_files(read_values(values), release="attendant", namespace=PLAIN_NAMESPACE)
    objects = [_namespace()] + [
        _without_helm(one)
        for path, text in sorted(rendered.items())
        if path.endswith(".yaml") and not path.startswith("tests/")
        for one in yaml.safe_load_all(text)
        if one
    ]
    names = [f"{one['kind'].lower()}.yaml" for one in objects]
    has_gpu = read_values(values).get("gpu", {}).get("enabled")
    header = HEADER.format(values, " Unverified on CUDA (2026-11-23)." if has_gpu else "")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": PLAIN_NAMESPACE,
        "resources": names,
    }
    for name, one in zip(names, objects, strict=True):
        yield name, header + _text(one)
    yield "kustomization.yaml", header + _needs(objects) + _text(kustomization)


def _text(one: Object) -> str:
    return yaml.safe_dump(one, sort_keys=False, width=100)


def _needs(objects: list[Object]) -> str:
    """Objects that must be there before, as pods wait for them without end."""
    (deployment,) = (one for one in objects if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (image,) = (each["image"] for each in pod["containers"] if each["name"] == "attendant")
    claims = [one[CLAIM]["claimName"] for one in pod["volumes"] if CLAIM in one]
    return NEEDS.format(image=image, claim=", ".join(claims), namespace=PLAIN_NAMESPACE)


def _kserve_cuda() -> str:
    """KServe's runtime for GPUs: the CPU's, with what the chart gives to pods with GPUs."""
    made = render(read_values(PLAIN["kubernetes/gpu"]))
    (deployment,) = (one for one in made if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    runtime = yaml.safe_load(KSERVE.read_text(encoding="utf-8"))
    runtime["metadata"]["name"] += "-cuda"
    runtime["spec"]["tolerations"] = pod["tolerations"]
    (container,) = runtime["spec"]["containers"]
    container |= {"image": server["image"], "resources": server["resources"]}
    device = {"name": "ATTENDANT_DEVICE", "value": "cuda"}
    container["env"] = [
        device if one["name"] == device["name"] else one for one in container["env"]
    ]
    return KSERVE_CUDA_HEADER + _text(runtime)


def _kserve_http() -> str:
    """KServe's runtime for REST: its Service's port 80 is the first of the container's ports."""
    runtime = yaml.safe_load(KSERVE.read_text(encoding="utf-8"))
    runtime["metadata"]["name"] += "-http"
    runtime["spec"]["protocolVersions"] = ["v2"]
    (container,) = runtime["spec"]["containers"]
    container["ports"].reverse()
    return KSERVE_HTTP_HEADER + _text(runtime)


def _namespace() -> Object:
    """One that refuses pods with more rights than ours have."""
    label = "pod-security.kubernetes.io/"
    levels = {f"{label}{mode}": "restricted" for mode in ("enforce", "warn", "audit")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": PLAIN_NAMESPACE, "labels": levels},
    }


def _without_helm(one: Object) -> Object:
    labels = one["metadata"]["labels"]
    kept = {name: value for name, value in labels.items() if name not in OF_HELM}
    return one | {"metadata": one["metadata"] | {"labels": kept}}


if __name__ == "__main__":
    write()
