{{- /* Values that are well-formed one by one and make no sense together. */}}
{{- define "attendant.check" -}}
{{- $v := .Values }}
{{- $repository := $v.modelRepository }}
{{- $scaled := ne $v.autoscaling.mode "none" }}

{{- /* Where models come from. */}}
{{- if not $repository.source }}
{{- fail "modelRepository.source is not set, expected claim, initImage, baked or imageVolume" }}
{{- end }}
{{- range $source, $field := dict "claim" "name" "initImage" "repository" "imageVolume" "reference" }}
{{- $value := get (get $repository $source) $field }}
{{- if and (eq $source $repository.source) (not $value) }}
{{- fail (printf "modelRepository.%s.%s is not set, and modelRepository.source is %s" $source $field $source) }}
{{- end }}
{{- if and (ne $source $repository.source) $value }}
{{- fail (printf "modelRepository.%s.%s is set, and modelRepository.source is %s" $source $field $repository.source) }}
{{- end }}
{{- end }}
{{- if and (eq $repository.source "imageVolume") (semverCompare "<1.33-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "modelRepository.source is imageVolume, expected Kubernetes 1.33 or later, found %s" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- if and (eq $v.server.modelControlMode "poll") (ne $repository.source "claim") }}
{{- fail (printf "server.modelControlMode is poll, and modelRepository.source %s never changes: expected claim" $repository.source) }}
{{- end }}
{{- if and (eq $repository.source "initImage") (not $repository.initImage.tag) (not $repository.initImage.digest) }}
{{- fail "modelRepository.initImage has neither tag nor digest" }}
{{- end }}
{{- range $name, $image := dict "image" $v.image "gpu.image" $v.gpu.image "modelRepository.initImage" $repository.initImage }}
{{- if and (eq $image.tag "latest") (not $image.digest) }}
{{- fail (printf "%s.tag is latest, expected one that stays the same, or a digest: pods would differ" $name) }}
{{- end }}
{{- end }}

{{- /* What a pod takes. */}}
{{- range $resource := list "memory" "cpu" "ephemeral-storage" }}
{{- $request := get $v.resources.requests $resource }}
{{- $limit := get $v.resources.limits $resource }}
{{- if and $request $limit (lt (include "attendant.thousandths" $limit | int64) (include "attendant.thousandths" $request | int64)) }}
{{- fail (printf "resources.limits.%s is %v, expected at least resources.requests.%s, %v" $resource $limit $resource $request) }}
{{- end }}
{{- end }}
{{- $cache := get $v.server.settings "kv-cache-bytes" | default 2147483648 | int64 }}
{{- /* With a GPU, keys and values lie in its memory (unverified on CUDA: docs/how-to/cuda.md). */}}
{{- if and (not $v.gpu.enabled) (le (div (include "attendant.thousandths" $v.resources.limits.memory | int64) 1000) $cache) }}
{{- fail (printf "resources.limits.memory is %s, expected more than the keys and values of a generative model, which may take %d bytes: raise it, or set server.settings.kv-cache-bytes (to little, where no model generates)" $v.resources.limits.memory $cache) }}
{{- end }}
{{- if and $v.gpu.enabled $v.image.digest (not $v.gpu.image.digest) }}
{{- fail "image.digest is of the CPU image, and gpu.enabled is true: expected gpu.image.digest" }}
{{- end }}
{{- if and $v.gpu.enabled (not $v.gpu.image.repository) (hasSuffix "-cuda" $v.image.repository) }}
{{- fail (printf "image.repository is %s, and gpu.enabled adds -cuda to it: expected the CPU image's name there, or gpu.image.repository" $v.image.repository) }}
{{- end }}
{{- if and (not $v.gpu.enabled) (hasSuffix "-cuda" $v.image.repository) }}
{{- fail (printf "image.repository is %s, and gpu.enabled is false: expected the CPU image" $v.image.repository) }}
{{- end }}
{{- if and (not $v.gpu.enabled) (or $v.gpu.image.repository $v.gpu.image.tag $v.gpu.image.digest) }}
{{- fail "gpu.image is set, and gpu.enabled is false" }}
{{- end }}
{{- if not (or (kindIs "invalid" $v.podDisruptionBudget.maxUnavailable) (kindIs "invalid" $v.podDisruptionBudget.minAvailable)) }}
{{- fail "podDisruptionBudget.maxUnavailable and minAvailable are both set, expected one" }}
{{- end }}

{{- /* Names that the chart has, or that are there twice: one of the two would win silently, or all be refused. */}}
{{- $own := keys (include "attendant.ownLabels" . | fromYaml) }}
{{- include "attendant.checkNames" (dict "what" "label" "where" "commonLabels" "names" (keys $v.commonLabels) "taken" $own) }}
{{- $common := concat $own (keys $v.commonLabels) }}
{{- range $where, $labels := dict "podLabels" $v.podLabels "metrics.labels" $v.metrics.labels "metrics.dashboardLabels" $v.metrics.dashboardLabels }}
{{- include "attendant.checkNames" (dict "what" "label" "where" $where "names" (keys $labels) "taken" $common) }}
{{- end }}
{{- include "attendant.checkNames" (dict "what" "annotation" "where" "podAnnotations" "names" (keys $v.podAnnotations) "taken" (list "kubectl.kubernetes.io/default-container" "prometheus.io/scrape" "prometheus.io/port" "prometheus.io/path")) }}
{{- $secrets := keys (include "attendant.secrets" . | fromJson) }}
{{- $volumes := concat (list "tmp" "models") $secrets }}
{{- range $v.extraVolumes }}
{{- include "attendant.checkNames" (dict "what" "volume" "where" "extraVolumes" "names" (list .name) "taken" $volumes) }}
{{- $volumes = append $volumes .name }}
{{- end }}
{{- $paths := list "/tmp" $repository.path }}
{{- range $secrets }}
{{- $paths = append $paths (printf "/etc/attendant/%s" .) }}
{{- end }}
{{- range $v.extraVolumeMounts }}
{{- include "attendant.checkNames" (dict "what" "path" "where" "extraVolumeMounts" "names" (list .mountPath) "taken" $paths) }}
{{- $paths = append $paths .mountPath }}
{{- end }}
{{- $containers := list "attendant" "models" }}
{{- range $where, $list := dict "initContainers" $v.initContainers "sidecars" $v.sidecars }}
{{- range $list }}
{{- include "attendant.checkNames" (dict "what" "container" "where" $where "names" (list .name) "taken" $containers) }}
{{- $containers = append $containers .name }}
{{- end }}
{{- end }}
{{- if and $v.gpu.runtimeClassName $v.runtimeClassName (ne $v.gpu.runtimeClassName $v.runtimeClassName) }}
{{- fail (printf "runtimeClassName is %s, and gpu.runtimeClassName is %s: a pod has one" $v.runtimeClassName $v.gpu.runtimeClassName) }}
{{- end }}

{{- /* How pods leave. */}}
{{- $least := include "attendant.leastGraceSeconds" . | int }}
{{- with $v.drain.terminationGracePeriodSeconds }}
{{- if lt (int .) $least }}
{{- fail (printf "drain.terminationGracePeriodSeconds is %d, expected at least %d: preStopSeconds + delaySeconds + timeoutSeconds + 10" (int .) $least) }}
{{- end }}
{{- end }}
{{- with $v.drain.livenessGraceSeconds }}
{{- if le (int .) (int $v.drain.preStopSeconds) }}
{{- fail (printf "drain.livenessGraceSeconds is %d, expected more than preStopSeconds, %d, which pass before SIGTERM" (int .) (int $v.drain.preStopSeconds)) }}
{{- end }}
{{- end }}
{{- range $name, $seconds := dict "drain.timeoutSeconds" $v.drain.timeoutSeconds "server.connectionGraceSeconds" $v.server.connectionGraceSeconds }}
{{- if lt (int $seconds) (int $v.server.longestDeadlineSeconds) }}
{{- fail (printf "%s is %d, expected at least server.longestDeadlineSeconds, %d: calls would be cut off" $name (int $seconds) (int $v.server.longestDeadlineSeconds)) }}
{{- end }}
{{- end }}

{{- /* How many pods there are. */}}
{{- if and $scaled (not (kindIs "invalid" $v.replicas)) }}
{{- fail (printf "replicas is set, and autoscaling.mode is %s: every upgrade would undo its scale" $v.autoscaling.mode) }}
{{- end }}
{{- if gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas is %d, expected at most maxReplicas, %d" (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) }}
{{- end }}
{{- if and $scaled (eq $v.server.modelControlMode "explicit") }}
{{- fail (printf "server.modelControlMode is explicit, and autoscaling.mode is %s: new pods would not have what clients loaded into others" $v.autoscaling.mode) }}
{{- end }}
{{- $least := int $v.server.minModels }}
{{- if and (eq $v.server.modelControlMode "explicit") (not $v.server.models) (gt $least 0) }}
{{- fail (printf "server.minModels is %d, and server.modelControlMode is explicit without server.models: no pod would be ready, so that clients could load models into it; expected server.models, or server.minModels 0" $least) }}
{{- end }}
{{- if and $v.server.models (gt $least (len $v.server.models)) }}
{{- fail (printf "server.minModels is %d, expected at most the number of server.models, %d" $least (len $v.server.models)) }}
{{- end }}
{{- if and (eq $v.autoscaling.mode "keda") (not $v.autoscaling.keda.serverAddress) }}
{{- fail "autoscaling.keda.serverAddress is not set, and autoscaling.mode is keda" }}
{{- end }}
{{- if gt (int $v.autoscaling.keda.fallbackReplicas) (int $v.autoscaling.maxReplicas) }}
{{- fail (printf "autoscaling.keda.fallbackReplicas is %d, expected at most maxReplicas, %d" (int $v.autoscaling.keda.fallbackReplicas) (int $v.autoscaling.maxReplicas)) }}
{{- end }}
{{- $metric := $v.autoscaling.hpa.metric }}
{{- if ne (eq $metric.type "External") (gt (len $metric.selector) 0) }}
{{- fail (printf "autoscaling.hpa.metric.type is %s: an External metric needs a selector, that of Pods has none" $metric.type) }}
{{- end }}
{{- if and (not $v.gpu.enabled) (or $v.gpu.runtimeClassName $v.gpu.nodeSelector $v.gpu.surge) }}
{{- fail "gpu.runtimeClassName, gpu.nodeSelector or gpu.surge is set, and gpu.enabled is false" }}
{{- end }}
{{- if and (gt (int $v.gpu.count) 1) (or (contains "/mig-" $v.gpu.resource) (hasSuffix ".shared" $v.gpu.resource)) }}
{{- fail (printf "gpu.count is %d, and gpu.resource is %s: expected 1, as a process computes on one part of a GPU" (int $v.gpu.count) $v.gpu.resource) }}
{{- end }}

{{- /* Who may call. */}}
{{- if and (not $v.tls.secretName) (or $v.tls.serverName $v.tls.clientCaSecretName $v.tls.probeSecretName) }}
{{- fail "tls.serverName, tls.clientCaSecretName or tls.probeSecretName is set, and tls.secretName is not" }}
{{- end }}
{{- if ne (empty $v.tls.clientCaSecretName) (empty $v.tls.probeSecretName) }}
{{- fail "tls.clientCaSecretName and tls.probeSecretName must both be set, or neither: probes are clients too" }}
{{- end }}
{{- if ne (empty $v.auth.restrictedProtocols) (empty $v.auth.keySecretName) }}
{{- fail "auth.restrictedProtocols and auth.keySecretName must both be set, or neither" }}
{{- end }}
{{- if regexMatch "(^|[;,])\\s*health\\s*[,:]" $v.auth.restrictedProtocols }}
{{- fail "auth.restrictedProtocols has the group health, and probes have no key" }}
{{- end }}
{{- if and (get $v.server.settings "otlp-endpoint") $v.networkPolicy.enabled (not $v.networkPolicy.egress) }}
{{- fail "server.settings.otlp-endpoint is set, and networkPolicy.egress lets nothing out" }}
{{- end }}
{{- if and $v.gateway.enabled (not $v.service.clusterIP.enabled) }}
{{- fail "gateway.enabled is true, and service.clusterIP.enabled is not: the route needs a Service with an address" }}
{{- end }}
{{- $balanced := $v.service.clusterIP }}
{{- if and (ne $balanced.type "LoadBalancer") (or $balanced.loadBalancerClass $balanced.loadBalancerSourceRanges) }}
{{- fail (printf "service.clusterIP.loadBalancerClass or loadBalancerSourceRanges is set, and service.clusterIP.type is %s" $balanced.type) }}
{{- end }}
{{- if and (eq $balanced.type "ClusterIP") $balanced.externalTrafficPolicy }}
{{- fail "service.clusterIP.externalTrafficPolicy is set, and service.clusterIP.type is ClusterIP" }}
{{- end }}
{{- if and (not $balanced.enabled) (ne $balanced.type "ClusterIP") }}
{{- fail (printf "service.clusterIP.type is %s, and service.clusterIP.enabled is false" $balanced.type) }}
{{- end }}
{{- if and $v.admin.enabled $v.networkPolicy.enabled (not $v.networkPolicy.adminFrom) }}
{{- fail "networkPolicy.adminFrom is empty, and admin.enabled is true: expected at least one peer, such as [{podSelector: {matchLabels: {app: deployer}}}]" }}
{{- end }}
{{- if and $v.networkPolicy.adminFrom (not $v.admin.enabled) }}
{{- fail "networkPolicy.adminFrom is set, and admin.enabled is false" }}
{{- end }}
{{- if and $v.gateway.enabled (not $v.gateway.parentRefs) }}
{{- fail "gateway.parentRefs is empty, and gateway.enabled is true" }}
{{- end }}
{{- $http := $v.gateway.http }}
{{- if $http.enabled }}
{{- if not $http.parentRefs }}
{{- fail "gateway.http.parentRefs is empty, and gateway.http.enabled is true" }}
{{- end }}
{{- if not (or $http.inferencePool $v.service.clusterIP.enabled) }}
{{- fail "gateway.http.enabled is true, and service.clusterIP.enabled is not: the route needs a Service with an address, or gateway.http.inferencePool" }}
{{- end }}
{{- if and (or (not $http.hostnames) (contains "*" (join "," $http.hostnames))) (not (get $v.server.settings "http-allowed-hosts")) (not $v.auth.tokenSecretName) }}
{{- fail "gateway.http.hostnames does not name every host, and the server refuses names that it does not know: expected names without *, or server.settings.http-allowed-hosts, or auth.tokenSecretName" }}
{{- end }}
{{- if $v.gateway.enabled }}
{{- $sameHosts := or (not $http.hostnames) (not $v.gateway.hostnames) }}
{{- range $http.hostnames }}
{{- $sameHosts = or $sameHosts (has . $v.gateway.hostnames) }}
{{- end }}
{{- range $ours := $http.parentRefs }}
{{- range $theirs := $v.gateway.parentRefs }}
{{- $sameGateway := and (eq $ours.name $theirs.name) (eq ($ours.namespace | default "") ($theirs.namespace | default "")) }}
{{- /* Without a sectionName it is every listener. */}}
{{- $sameListener := or (not $ours.sectionName) (not $theirs.sectionName) (eq $ours.sectionName $theirs.sectionName) }}
{{- if and $sameHosts $sameGateway $sameListener }}
{{- fail (printf "gateway.parentRefs and gateway.http.parentRefs both lead to a listener of %s, with a common host name: a listener takes a GRPCRoute or an HTTPRoute of one name, not both; expected other hostnames, or a sectionName each" $ours.name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and $v.metrics.rules (not (.Files.Get "files/rules/attendant.yml")) }}
{{- fail "metrics.rules is true, and this chart has no files/rules/attendant.yml" }}
{{- end }}
{{- if and $v.metrics.rules (not (contains "attendant" (include "attendant.fullname" .))) }}
{{- fail (printf "metrics.rules is true, and jobs are named after %s: the alerts look for jobs with attendant in their names" (include "attendant.fullname" .)) }}
{{- end }}
{{- if and $v.metrics.dashboards (not (.Files.Glob "files/dashboards/*.json")) }}
{{- fail "metrics.dashboards is true, and this chart has no files/dashboards" }}
{{- end }}
{{- end }}

{{- /* Of {what, where, names, taken}. */}}
{{- define "attendant.checkNames" -}}
{{- range .names }}
{{- if has . $.taken }}
{{- fail (printf "%s has the %s %s, which is there already" $.where $.what .) }}
{{- end }}
{{- end }}
{{- end }}
