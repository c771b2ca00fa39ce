{{- define "attendant.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* At most 46 characters: of a pod's name 58 are kept, and 12 are two dashes and a hash. */}}
{{- define "attendant.fullname" -}}
{{- $name := include "attendant.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- .Values.fullnameOverride | default $full | trunc 46 | trimSuffix "-" }}
{{- end }}

{{- define "attendant.selector" -}}
app.kubernetes.io/name: {{ include "attendant.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Not the server's: its Services must not lead to the pod of `helm test`. */}}
{{- define "attendant.testSelector" -}}
app.kubernetes.io/name: {{ include "attendant.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "attendant.labels" -}}
{{ include "attendant.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "attendant.ownLabels" -}}
{{ include "attendant.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Every port, once: the container's, those of the Services by the end of their names, and the allowed peers. */}}
{{- define "attendant.ports" -}}
{{- $v := .Values }}
{{- $ports := list
  (dict "name" "grpc" "port" 8001 "appProtocol" (include "attendant.appProtocol" .) "services" (list "" "-balanced") "from" $v.networkPolicy.grpcFrom "isTested" true)
  (dict "name" "http" "port" 8000 "appProtocol" (ternary "https" "http" (ne $v.tls.secretName "")) "services" (list "" "-balanced") "from" $v.networkPolicy.grpcFrom "isTested" true)
  (dict "name" "metrics" "port" 8002 "appProtocol" "http" "services" (list "") "from" $v.networkPolicy.metricsFrom)
}}
{{- if $v.admin.enabled }}
{{- $ports = append $ports (dict "name" "admin" "port" 8003 "appProtocol" (include "attendant.appProtocol" .) "services" (list "-admin") "from" $v.networkPolicy.adminFrom) }}
{{- end }}
{{- toJson $ports }}
{{- end }}

{{- /* Of {root, service}: the ports that a Service has. */}}
{{- define "attendant.servicePorts" -}}
{{- range include "attendant.ports" .root | fromJsonArray }}
{{- if has $.service .services }}
- name: {{ .name }}
  port: {{ int .port }}
  targetPort: {{ .name }}
  protocol: TCP
  appProtocol: {{ .appProtocol }}
{{- end }}
{{- end }}
{{- end }}

{{- define "attendant.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "attendant.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Of {image, tag}: repository, tag if any, digest if any. */}}
{{- define "attendant.image" -}}
{{- $tag := .image.tag | default (ternary "" .tag (ne .image.digest "")) -}}
{{ .image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- /* The CPU image, or with GPUs the CUDA one (docs/how-to/cuda.md): of its own name, or the other's and -cuda. A chart's version may have a +, a tag not. */}}
{{- define "attendant.serverImage" -}}
{{- $v := .Values }}
{{- $image := $v.image }}
{{- if $v.gpu.enabled }}
{{- $repository := $v.gpu.image.repository | default (printf "%s-cuda" $v.image.repository) }}
{{- $image = dict "repository" $repository "tag" ($v.gpu.image.tag | default $v.image.tag) "digest" $v.gpu.image.digest }}
{{- end }}
{{- include "attendant.image" (dict "image" $image "tag" (.Chart.AppVersion | replace "+" "_")) }}
{{- end }}

{{- /* Of a quantity of Kubernetes, as 4Gi or 500m: a whole number of thousandths. */}}
{{- define "attendant.thousandths" -}}
{{- $factors := dict "m" 1 "" 1000 "k" 1e6 "M" 1e9 "G" 1e12 "T" 1e15 "Ki" 1024e3 "Mi" 1048576e3 "Gi" 1073741824e3 "Ti" 1099511627776e3 }}
{{- $number := regexFind "^[0-9.]+" (toString .) | float64 }}
{{- mulf $number (get $factors (regexFind "[a-zA-Z]*$" (toString .))) | int64 }}
{{- end }}

{{- define "attendant.serverName" -}}
{{ .Values.tls.serverName | default (printf "%s.%s.svc" (include "attendant.fullname" .) .Release.Namespace) }}
{{- end }}

{{- define "attendant.appProtocol" -}}
{{ ternary "https" "kubernetes.io/h2c" (ne .Values.tls.secretName "") }}
{{- end }}

{{- /* From SIGKILL back: what the drain takes at most, and 10 s to close what it left. */}}
{{- define "attendant.leastGraceSeconds" -}}
{{ add (int .Values.drain.preStopSeconds) (int .Values.drain.delaySeconds) (int .Values.drain.timeoutSeconds) 10 }}
{{- end }}

{{- /* From a liveness failure to SIGKILL. The kubelet sleeps for preStop in it, and gives 2 s after that. */}}
{{- define "attendant.livenessGraceSeconds" -}}
{{ .Values.drain.livenessGraceSeconds | default (add (int .Values.drain.preStopSeconds) 2) | int64 }}
{{- end }}

{{- define "attendant.inFlightTarget" -}}
{{ max 1 (div (mul (int .Values.autoscaling.slotsPerReplica) (int .Values.autoscaling.targetPercent)) 100) }}
{{- end }}

{{- /* Aggregated, so that it is one number however many pods there are. */}}
{{- define "attendant.inFlightQuery" -}}
{{- $pods := printf "{namespace=%q,pod=~\"%s-[a-z0-9]+-[a-z0-9]+\"}" .Release.Namespace (include "attendant.fullname" .) -}}
sum(attendant_requests_waiting{{ $pods }}) + sum(attendant_requests_running{{ $pods }})
{{- end }}

{{- define "attendant.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: {{ int64 .Values.securityContext.runAsUser }}
runAsGroup: {{ int64 .Values.securityContext.runAsGroup }}
fsGroup: {{ int64 .Values.securityContext.fsGroup }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "attendant.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Of {root, containers}: those of a user's own, hardened as the server is where they do not say otherwise. */}}
{{- define "attendant.containers" -}}
{{- $hardened := include "attendant.containerSecurityContext" .root | fromYaml }}
{{- range .containers }}
- {{- toYaml (merge (dict "securityContext" (merge (dict) (.securityContext | default dict) $hardened)) .) | nindent 2 }}
{{- end }}
{{- end }}

{{- /* gRPC probes of Kubernetes speak plaintext only: with TLS the image asks itself. */}}
{{- define "attendant.readinessProbe" -}}
{{- if .Values.tls.secretName -}}
exec:
  command: [attendant, healthcheck, --service, readiness, --timeout-s, "5"]
timeoutSeconds: 10
{{- else -}}
grpc:
  port: 8001
  service: readiness
timeoutSeconds: 5
{{- end }}
{{- end }}

{{- /* The port of the metrics is open while models are loaded, plain, and answered by threads of its
own: a busy server is not restarted. */}}
{{- define "attendant.metricsProbe" -}}
httpGet:
  path: {{ . }}
  port: 8002
timeoutSeconds: 5
{{- end }}

{{- /* What a client inside the image needs to reach a TLS port. */}}
{{- define "attendant.clientEnv" -}}
{{- if .Values.tls.secretName }}
- name: ATTENDANT_CLIENT_TLS_CA
  value: /etc/attendant/tls/tls.crt
- name: ATTENDANT_CLIENT_TLS_NAME
  value: {{ include "attendant.serverName" . }}
{{- end }}
{{- if .Values.tls.probeSecretName }}
- name: ATTENDANT_CLIENT_TLS_CERT
  value: /etc/attendant/probe/tls.crt
- name: ATTENDANT_CLIENT_TLS_KEY
  value: /etc/attendant/probe/tls.key
{{- end }}
{{- end }}

{{- /* Labels and annotations that may be none. */}}
{{- define "attendant.annotations" -}}
{{- with . }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
