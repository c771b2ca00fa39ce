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
{{ include "attendant.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "attendant.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "attendant.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- /* Of {image, tag}: repository, tag if any, digest if any. */}}
{{- define "attendant.image" -}}
{{- $tag := .image.tag | default (ternary "" .tag (ne .image.digest "")) -}}
{{ .image.repository }}{{ with $tag }}:{{ . }}{{ end }}{{ with .image.digest }}@{{ . }}{{ end }}
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

{{- /* gRPC probes of Kubernetes speak plaintext only: with TLS the image asks itself. */}}
{{- define "attendant.probe" -}}
{{- if .root.Values.tls.secretName -}}
exec:
  command: [attendant, healthcheck, --service, {{ .service }}, --timeout-s, "5"]
timeoutSeconds: 10
{{- else -}}
grpc:
  port: 8001
  service: {{ .service }}
timeoutSeconds: 5
{{- end }}
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
