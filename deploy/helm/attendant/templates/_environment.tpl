{{- /* The server's settings. `attendant healthcheck` reads the same ones, and so needs no flags. */}}
{{- define "attendant.env" -}}
- name: ATTENDANT_MODEL_REPOSITORY
  value: {{ .Values.modelRepository.path }}
- name: ATTENDANT_HOST
  value: {{ .Values.server.host | quote }}
- name: ATTENDANT_METRICS_HOST
  value: {{ .Values.server.host | quote }}
{{- /* The NetworkPolicy restricts access: a public address is then no reason to warn. */}}
{{- $policy := .Values.networkPolicy }}
- name: ATTENDANT_TRUSTED_NETWORK
  value: {{ and $policy.enabled (gt (len $policy.grpcFrom) 0) (gt (len $policy.metricsFrom) 0) | quote }}
- name: ATTENDANT_MODEL_CONTROL_MODE
  value: {{ .Values.server.modelControlMode }}
- name: ATTENDANT_MIN_MODELS
  value: {{ int64 .Values.server.minModels | quote }}
{{- with .Values.server.models }}
- name: ATTENDANT_LOAD_MODELS
  value: {{ join "," . | quote }}
{{- end }}
{{- if .Values.admin.enabled }}
- name: ATTENDANT_ADMIN_HOST
  value: {{ .Values.server.host | quote }}
- name: ATTENDANT_ADMIN_PORT
  value: "8003"
{{- end }}
{{- /* docs/how-to/cuda.md says what was verified on CUDA. */}}
- name: ATTENDANT_DEVICE
  value: {{ ternary "cuda" "cpu" .Values.gpu.enabled }}
- name: ATTENDANT_NUM_THREADS
  valueFrom:
    resourceFieldRef: # rounded up
      containerName: attendant
      resource: requests.cpu
      divisor: "1"
- name: ATTENDANT_DRAIN_DELAY_S
  value: {{ int64 .Values.drain.delaySeconds | quote }}
- name: ATTENDANT_DRAIN_TIMEOUT_S
  value: {{ int64 .Values.drain.timeoutSeconds | quote }}
- name: ATTENDANT_MAX_CONNECTION_AGE_S
  value: {{ int64 .Values.server.maxConnectionAgeSeconds | quote }}
- name: ATTENDANT_CONNECTION_GRACE_S
  value: {{ int64 .Values.server.connectionGraceSeconds | quote }}
{{- if .Values.tls.secretName }}
- name: ATTENDANT_TLS_CERT
  value: /etc/attendant/tls/tls.crt
- name: ATTENDANT_TLS_KEY
  value: /etc/attendant/tls/tls.key
{{- end }}
{{- if .Values.tls.clientCaSecretName }}
- name: ATTENDANT_TLS_CLIENT_CA
  value: /etc/attendant/client-ca/ca.crt
{{- end }}
{{- if .Values.auth.tokenSecretName }}
- name: ATTENDANT_TOKEN_FILE
  value: /etc/attendant/tokens/tokens
{{- end }}
{{- if .Values.auth.restrictedProtocols }}
- name: ATTENDANT_RESTRICTED_PROTOCOLS
  value: {{ .Values.auth.restrictedProtocols | quote }}
{{- end }}
{{- include "attendant.clientEnv" . }}
{{- /* Names that clients call by through the gateway. With tokens any is taken, and the server knows no *.example.com. */}}
{{- $http := .Values.gateway.http }}
{{- if and $http.enabled $http.hostnames (not .Values.auth.tokenSecretName) (not (hasKey .Values.server.settings "http-allowed-hosts")) }}
- name: ATTENDANT_HTTP_ALLOWED_HOSTS
  value: {{ join "," $http.hostnames | quote }}
{{- end }}
{{- range $flag, $value := .Values.server.settings }}
- name: ATTENDANT_{{ $flag | upper | replace "-" "_" }}
  value: {{ ternary $value (toJson $value) (kindIs "string" $value) | quote }}
{{- end }}
{{- range $name, $value := .Values.server.env }}
- name: {{ $name }}
  {{- if kindIs "string" $value }}
  value: {{ $value | quote }}
  {{- else }}
  valueFrom:
    {{- toYaml $value | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

{{- /* Secrets by the folder that they are mounted at. Whole folders, so that renewals arrive. */}}
{{- define "attendant.secrets" -}}
{{- dict "tls" .Values.tls.secretName "client-ca" .Values.tls.clientCaSecretName "probe" .Values.tls.probeSecretName "tokens" .Values.auth.tokenSecretName "keys" .Values.auth.keySecretName | toJson }}
{{- end }}

{{- define "attendant.secretMounts" -}}
{{- range $folder, $secret := include "attendant.secrets" . | fromJson }}
{{- if $secret }}
- {name: {{ $folder }}, mountPath: /etc/attendant/{{ $folder }}, readOnly: true}
{{- end }}
{{- end }}
{{- end }}

{{- define "attendant.secretVolumes" -}}
{{- range $folder, $secret := include "attendant.secrets" . | fromJson }}
{{- if $secret }}
- name: {{ $folder }}
  secret:
    secretName: {{ $secret }}
    defaultMode: 288 # 0440: the group is fsGroup
{{- end }}
{{- end }}
{{- end }}
