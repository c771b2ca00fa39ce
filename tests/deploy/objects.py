"""Reading Kubernetes' objects: what the rules look at, by name."""

import re
from collections.abc import Iterator
from typing import Any

from deploy.generate.chart import Object

SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12} | {
    f"{letter}i": 1024.0**power for power, letter in enumerate("KMGT", start=1)
}


def of_kind(objects: list[Object], *kinds: str) -> list[Object]:
    return [one for one in objects if one["kind"] in kinds]


def specs(objects: list[Object], kind: str) -> dict[str, Object]:
    """By name."""
    return {one["metadata"]["name"]: one["spec"] for one in of_kind(objects, kind)}


def deployment(objects: list[Object]) -> Object:
    (one,) = of_kind(objects, "Deployment")
    return one


def pod_of(objects: list[Object]) -> Object:
    spec: Object = deployment(objects)["spec"]["template"]["spec"]
    return spec


def server_of(objects: list[Object]) -> Object:
    """The container that serves."""
    return next(one for one in pod_of(objects)["containers"] if one["name"] == "attendant")


def startup_s(server: Object) -> float:
    """Seconds that models have to load before the pod is ended."""
    probe = server.get("startupProbe", {"periodSeconds": 0, "failureThreshold": 0})
    return float(probe["periodSeconds"] * probe["failureThreshold"])


def pods(objects: list[Object]) -> Iterator[tuple[str, Object]]:
    """Every pod's name and specification, those of hooks too."""
    for one in objects:
        if one["kind"] == "Pod":
            yield one["metadata"]["name"], one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["metadata"]["name"], one["spec"]["template"]["spec"]


def containers(pod: Object) -> list[Object]:
    return [*pod.get("initContainers", []), *pod["containers"]]


def variables(container: Object) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container["env"]}


def labels_of(objects: list[Object]) -> Object:
    labels: Object = deployment(objects)["spec"]["template"]["metadata"]["labels"]
    return labels


def selects(selector: Object, labels: Object) -> bool:
    return bool(selector) and selector.items() <= labels.items()


def quantity(value: str | float) -> float:
    """Of Kubernetes, in units: 500m is a half, 4Gi is 4 * 2**30."""
    number, suffix = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(value)).groups()  # type: ignore[union-attr]
    return float(number) * SUFFIXES[suffix]


def num_gpus(server: Object) -> int:
    """GPUs, and parts of them."""
    limits = server["resources"].get("limits", {})
    return sum(int(count) for name, count in limits.items() if name.startswith("nvidia.com/"))


def twice(names: list[Any]) -> set[Any]:
    return {name for name in names if names.count(name) > 1}
