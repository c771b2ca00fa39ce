"""Closed schemas of what we use of objects that Kubernetes itself does not know.

Written by hand for the fields in our files, which were held against the definitions of
prometheus-operator, KEDA, the Gateway API, its inference extension and KServe of August 2026: a
field that is not here is a mistake, or needs a look at the definition first.
"""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
POSITIVE: Schema = {"type": "integer", "minimum": 1}
TEXTS: Schema = {"type": "object", "additionalProperties": TEXT}
DURATION: Schema = {"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}
ANY: Schema = {}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": 1}


def closed(optional: tuple[str, ...] = (), /, **properties: Schema) -> Schema:
    required = [name for name in properties if name not in optional]
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "required": required,
    }


SELECTOR = closed(matchLabels=TEXTS)
ENDPOINTS = list_of(closed(port=TEXT, path=TEXT, interval=DURATION))
SCALING = closed(
    stabilizationWindowSeconds=COUNT,
    selectPolicy=one_of("Max", "Min", "Disabled"),
    policies=list_of(
        closed(type=one_of("Percent", "Pods"), value=POSITIVE, periodSeconds=POSITIVE)
    ),
)
WINDOW = closed(stabilizationWindowSeconds=COUNT)
RULE: Schema = {
    "oneOf": [
        closed(("labels",), record=TEXT, expr=TEXT, labels=TEXTS),
        closed(
            ("for", "keep_firing_for", "annotations", "labels"),
            alert=TEXT,
            expr=TEXT,
            labels=TEXTS,
            annotations=TEXTS,
            **{"for": DURATION, "keep_firing_for": DURATION},
        ),
    ]
}
MATCH = one_of("Exact", "RegularExpression")
GRPC_MATCH = closed(
    ("method", "headers"),
    method=closed(("type", "service", "method"), type=MATCH, service=TEXT, method=TEXT),
    headers=list_of(closed(("type",), type=MATCH, name=TEXT, value=TEXT)),
)
HTTP_MATCH = closed(
    ("path", "method", "headers"),
    path=closed(type=one_of("Exact", "PathPrefix", "RegularExpression"), value=TEXT),
    method=one_of("GET", "HEAD", "POST", "OPTIONS"),
    headers=GRPC_MATCH["properties"]["headers"],
)
TO_SERVICE = closed(name=TEXT, port=POSITIVE)
TO_POOL = closed(
    group={"const": "inference.networking.k8s.io"}, kind={"const": "InferencePool"}, name=TEXT
)


def route(match: Schema, backend: Schema) -> Schema:
    """Of a route of the Gateway API."""
    parent = closed(
        ("namespace", "sectionName", "port"),
        name=TEXT,
        namespace=TEXT,
        sectionName=TEXT,
        port=POSITIVE,
    )
    rule = closed(("matches",), matches=list_of(match), backendRefs=list_of(backend))
    return closed(
        ("hostnames",),
        parentRefs=list_of(parent),
        hostnames=list_of(TEXT),
        rules=list_of(rule),
    )


CONTAINER = closed(
    ("command", "securityContext", "resources"),
    name=TEXT,
    image=TEXT,
    args=list_of(TEXT),
    **dict.fromkeys(
        ("env", "ports", "volumeMounts", "startupProbe", "readinessProbe", "livenessProbe",
         "lifecycle", "command", "securityContext", "resources"), ANY
    ),
)  # fmt: skip
SPECS: dict[tuple[str, str], Schema] = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"): closed(selector=SELECTOR, endpoints=ENDPOINTS),
    ("monitoring.coreos.com/v1", "PodMonitor"): closed(
        selector=SELECTOR, podMetricsEndpoints=ENDPOINTS
    ),
    ("monitoring.coreos.com/v1", "PrometheusRule"): closed(
        groups=list_of(closed(("interval",), name=TEXT, interval=DURATION, rules=list_of(RULE)))
    ),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        scaleTargetRef=closed(name=TEXT),
        minReplicaCount=POSITIVE,
        maxReplicaCount=POSITIVE,
        pollingInterval=POSITIVE,
        fallback=closed(
            failureThreshold=POSITIVE,
            replicas=POSITIVE,
            behavior=one_of("static", "currentReplicas", "currentReplicasIfHigher"),
        ),
        advanced=closed(
            horizontalPodAutoscalerConfig=closed(
                behavior=closed(scaleUp=SCALING, scaleDown=SCALING)
            )
        ),
        triggers=list_of(
            closed(
                ("authenticationRef",),
                type=one_of("prometheus"),
                metricType=one_of("AverageValue", "Value"),
                metadata=closed(
                    serverAddress=TEXT,
                    query=TEXT,
                    threshold=TEXT,
                    ignoreNullValues=one_of("true", "false"),
                ),
                authenticationRef=closed(name=TEXT),
            )
        ),
    ),
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): route(GRPC_MATCH, TO_SERVICE),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): route(
        HTTP_MATCH, {"oneOf": [TO_SERVICE, TO_POOL]}
    ),
    ("inference.networking.k8s.io/v1", "InferencePool"): closed(
        selector=SELECTOR,
        targetPorts=list_of(closed(number=POSITIVE)),
        endpointPickerRef=closed(
            name=TEXT, port=closed(number=POSITIVE), failureMode=one_of("FailOpen", "FailClose")
        ),
    ),
    ("serving.kserve.io/v1alpha1", "ClusterServingRuntime"): closed(
        ("tolerations",),
        annotations=TEXTS,
        supportedModelFormats=list_of(
            closed(
                ("autoSelect", "priority"),
                name=TEXT,
                version=TEXT,
                autoSelect={"type": "boolean"},
                priority=POSITIVE,
            )
        ),
        multiModel={"const": False},
        protocolVersions=list_of(one_of("v2", "grpc-v2")),
        containers=list_of(CONTAINER),
        volumes=ANY,
        tolerations=list_of(closed(key=TEXT, operator=one_of("Exists"), effect=TEXT)),
    ),
    ("serving.kserve.io/v1beta1", "InferenceService"): closed(
        predictor=closed(
            automountServiceAccountToken={"const": False},
            enableServiceLinks={"const": False},
            terminationGracePeriodSeconds=POSITIVE,
            securityContext=ANY,
            minReplicas=POSITIVE,
            maxReplicas=POSITIVE,
            autoScaling=closed(
                metrics=list_of(
                    closed(
                        type=one_of("External"),
                        external=closed(
                            metric=closed(
                                backend=one_of("prometheus"), serverAddress=TEXT, query=TEXT
                            ),
                            target=closed(type=one_of("Value"), value=TEXT),
                        ),
                    )
                ),
                behavior=closed(scaleUp=WINDOW, scaleDown=WINDOW),
            ),
            deploymentStrategy=ANY,
            topologySpreadConstraints=ANY,
            model=closed(
                ("resources",),
                modelFormat=closed(name=TEXT, version=TEXT),
                runtime=TEXT,
                protocolVersion=one_of("grpc-v2"),
                storageUri=TEXT,
                resources=ANY,
            ),
        ),
    ),
}


def schema_of(api_version: str, kind: str) -> Schema:
    """Of a whole object. KeyError for kinds that we do not use."""
    metadata = closed(
        ("labels", "annotations", "namespace"),
        name=TEXT,
        namespace=TEXT,
        labels=TEXTS,
        annotations=TEXTS,
    )
    return closed(
        apiVersion={"const": api_version},
        kind={"const": kind},
        metadata=metadata,
        spec=SPECS[api_version, kind],
    )
