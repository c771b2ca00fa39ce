"""What must be true of an installation, said in code: each rule lists what breaks it.

A JSON schema knows which fields there are; these know what they are for. A rule takes all
objects of one installation and returns findings, none where it holds. That each rule finds
what it should is tested with objects broken on purpose.
"""

import re

from deploy.generate.chart import Object
from tests.deploy.objects import (
    containers,
    deployment,
    labels_of,
    num_gpus,
    of_kind,
    pod_of,
    pods,
    selects,
    server_of,
    specs,
    startup_s,
    twice,
    variables,
)
from tests.deploy.pod_rules import (
    GRPC_PORT,
    HTTP_PORT,
    bad_container,
    drain,
    model_repository,
    pod_security,
    probes,
    resources,
)

METRICS_PORT, ADMIN_PORT = 8002, 8003
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LABEL = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
MAX_NAME = {"Service": 63}  # characters; of other kinds 253


def admissible(objects: list[Object]) -> list[str]:
    """What the API server would refuse, or never start, though the schema lets it pass."""
    named = [(one["kind"], one["metadata"]["name"]) for one in objects]
    found = [
        f"{one['kind']} {one['metadata']['name']}: a bad name"
        for one in objects
        if not NAME.fullmatch(one["metadata"]["name"])
        or len(one["metadata"]["name"]) > MAX_NAME.get(one["kind"], 253)
    ]
    spec = deployment(objects)["spec"]
    if not selects(spec["selector"]["matchLabels"], labels_of(objects)):
        found.append("the Deployment does not select its own pods")
    found += [f"{one} is there twice" for one in twice(named)]
    for one in objects:
        for name, value in one["metadata"].get("labels", {}).items():
            if not LABEL.fullmatch(value):
                found.append(f"the label {name} is {value!r}")
    accounts = {one["metadata"]["name"] for one in of_kind(objects, "ServiceAccount")}
    if pod_of(objects).get("serviceAccountName", "default") not in accounts | {"default"}:
        found.append("no such service account")
    for name, pod in pods(objects):
        volumes = [volume["name"] for volume in pod.get("volumes", [])]
        found += [f"{name}: volume {one} is there twice" for one in twice(volumes)]
        mounted = {m["name"] for one in containers(pod) for m in one["volumeMounts"]}
        found += [f"{name}: volume {one} is not mounted" for one in set(volumes) - mounted]
        found += [f"{name}: no volume {one}" for one in mounted - set(volumes)]
        for container in containers(pod):
            found += [f"{name}: {one}" for one in bad_container(container)]
    return found


def disruption(objects: list[Object]) -> list[str]:
    """Nodes can be emptied, pods are spread, and only the server's own ports are open."""
    labels, found = labels_of(objects), []
    budgets = of_kind(objects, "PodDisruptionBudget")
    if len(budgets) != 1:
        found.append(f"{len(budgets)} budgets")
    for one in budgets:
        if (
            one["spec"].get("maxUnavailable") in (0, "0%")
            or one["spec"].get("minAvailable") == "100%"
        ):
            found.append("no pod may ever leave its node")
        if one["spec"].get("unhealthyPodEvictionPolicy") != "AlwaysAllow":
            found.append("a broken pod holds its node")
        if not selects(one["spec"]["selector"]["matchLabels"], labels):
            found.append("the budget is of other pods")
    spread = pod_of(objects).get("topologySpreadConstraints", [])
    if not spread:
        found.append("pods are not spread")
    for one in spread:
        if one.get("matchLabelKeys") != ["pod-template-hash"]:
            found.append(f"old pods count when new ones are spread over {one['topologyKey']}")
        if not selects(one["labelSelector"]["matchLabels"], labels):
            found.append(f"other pods are spread over {one['topologyKey']}")
    policies = of_kind(objects, "NetworkPolicy")
    if not policies:
        found.append("no NetworkPolicy")
    for one in policies:
        spec = one["spec"]
        ports = [port["port"] for rule in spec["ingress"] for port in rule.get("ports", [])]
        own = {port["name"] for port in server_of(objects)["ports"]}
        if set(ports) != own or not all("ports" in r for r in spec["ingress"]):
            found.append(f"the NetworkPolicy opens {ports}")
        found += [
            "everybody may administer"
            for rule in spec["ingress"]
            if {"port": "admin", "protocol": "TCP"} in rule.get("ports", []) and "from" not in rule
        ]
        if set(spec["policyTypes"]) != {"Ingress", "Egress"}:
            found.append("the NetworkPolicy leaves a direction open")
        if not selects(spec["podSelector"]["matchLabels"], labels):
            found.append("the NetworkPolicy is of other pods")
    return found


def rollout(objects: list[Object]) -> list[str]:
    """New pods come first; where each has a GPU, old ones go first, or none would be free."""
    spec = deployment(objects)["spec"]
    has_gpu = num_gpus(server_of(objects)) > 0
    update = spec.get("strategy", {}).get("rollingUpdate", {})
    found = []
    if (update.get("maxSurge"), update.get("maxUnavailable")) != ((0, 1) if has_gpu else (1, 0)):
        found.append(f"{'with' if has_gpu else 'without'} GPUs, the rollout is {update}")
    ready_s = startup_s(server_of(objects)) + spec.get("minReadySeconds", 0)
    if spec.get("progressDeadlineSeconds", 600) <= ready_s:
        found.append("a rollout fails while its pods may still load models")
    if spec.get("minReadySeconds", 0) < 30:
        found.append("old pods end before clients have looked names up again")
    return found


def services(objects: list[Object]) -> list[str]:
    """A headless Service for clients that balance, with a protocol that proxies know."""
    labels, found = labels_of(objects), []
    ports = {one["name"]: one["containerPort"] for one in server_of(objects)["ports"]}
    has_admin = "ATTENDANT_ADMIN_PORT" in variables(server_of(objects))
    admin = {"admin": ADMIN_PORT} if has_admin else {}
    if ports != {"grpc": GRPC_PORT, "http": HTTP_PORT, "metrics": METRICS_PORT} | admin:
        found.append(f"the container's ports are {ports}")
    grpc = "https" if "ATTENDANT_TLS_CERT" in variables(server_of(objects)) else "kubernetes.io/h2c"
    named = specs(objects, "Service")
    if "None" not in [spec.get("clusterIP") for spec in named.values()]:
        found.append("no headless Service")
    for name, spec in named.items():
        if not selects(spec["selector"], labels):
            found.append(f"{name} leads to other pods")
        for port in spec["ports"]:
            http = "https" if grpc == "https" else "http"
            protocols = {"grpc": grpc, "http": http, "metrics": "http", "admin": grpc}
            expected = protocols[port["name"]]
            if port.get("appProtocol") != expected:
                found.append(f"{name}: {port['name']} is not {expected}")
            if port["targetPort"] not in ports:
                found.append(f"{name}: {port['name']} leads nowhere")
    for route in of_kind(objects, "GRPCRoute", "HTTPRoute"):
        own_port = {"GRPCRoute": GRPC_PORT, "HTTPRoute": HTTP_PORT}[route["kind"]]
        for backend in (b for rule in route["spec"]["rules"] for b in rule["backendRefs"]):
            if backend.get("kind") == "InferencePool":  # an object of another chart
                continue
            if backend["port"] != own_port:
                found.append(f"the {route['kind']} leads to port {backend['port']}")
            spec = named.get(backend["name"], {"clusterIP": "None", "ports": []})
            if backend["port"] not in [port["port"] for port in spec["ports"]]:
                found.append(f"the route leads to {backend['name']}, which there is not")
            if spec.get("clusterIP") == "None":
                found.append("the route leads to a Service without address")
    found += [
        f"calls are led to {pod['metadata']['name']}"
        for pod in of_kind(objects, "Pod")
        if any(selects(spec["selector"], pod["metadata"]["labels"]) for spec in named.values())
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
            targets = [labels_of(objects)]
        else:
            targets = [
                service["metadata"]["labels"]
                for service in of_kind(objects, "Service")
                if "metrics" in [port["name"] for port in service["spec"]["ports"]]
            ]
        selector = spec["selector"]["matchLabels"]
        if [selects(selector, labels) for labels in targets] != [True]:
            found.append(f"the {one['kind']} selects {selector}")
        ends = spec.get("endpoints", spec.get("podMetricsEndpoints"))
        if [end["port"] for end in ends] != ["metrics"]:
            found.append(f"the {one['kind']} scrapes {ends}")
    for one in of_kind(objects, "PrometheusRule"):
        rules = [rule for group in one["spec"]["groups"] for rule in group["rules"]]
        if not any("alert" in rule for rule in rules):
            found.append("rules without an alert")
    return found


RULES = {
    rule.__name__: rule
    for rule in (
        admissible,
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
    )
}
