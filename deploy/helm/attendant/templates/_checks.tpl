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
{{- range $name, $image := dict "image" $v.image "modelRepository.initImage" $repository.initImage }}
{{- if and (eq $image.tag "latest") (not $image.digest) }}
{{- fail (printf "%s.tag is latest, expected one that stays the same, or a digest: pods would differ" $name) }}
{{- end }}
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
{{- if and (eq $v.server.modelControlMode "explicit") (not (get $v.server.settings "load-models")) (gt (int $v.server.minModels) 0) }}
{{- fail (printf "server.minModels is %d, and server.modelControlMode is explicit without the setting load-models: no pod would be ready, so that clients could load models into it; expected 0" (int $v.server.minModels)) }}
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
{{- if and $v.gateway.enabled (not $v.gateway.parentRefs) }}
{{- fail "gateway.parentRefs is empty, and gateway.enabled is true" }}
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
