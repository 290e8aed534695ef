{{- define "revgate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* Leaves room for the suffixes of what is named after it, within 63 characters. */}}
{{- define "revgate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 44 | trimSuffix "-" -}}
{{- else if contains (include "revgate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 44 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "revgate.name" .) | trunc 44 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "revgate.selectorLabels" -}}
app.kubernetes.io/name: {{ include "revgate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "revgate.memberLabels" -}}
{{ include "revgate.selectorLabels" . }}
app.kubernetes.io/component: member
{{- end -}}

{{- define "revgate.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "revgate.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: revgate
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The metadata of an object: {root, name, component, namespace, labels, annotations}, all but root and name optional. */}}
{{- define "revgate.metadata" -}}
{{- $annotations := merge (dict) (.annotations | default dict) .root.Values.commonAnnotations -}}
name: {{ .name }}
namespace: {{ .namespace | default .root.Release.Namespace }}
labels:
  {{- include "revgate.labels" .root | nindent 2 }}
  {{- with .component }}
  app.kubernetes.io/component: {{ . }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* {image, tag}: where the image is. */}}
{{- define "revgate.image" -}}
{{- $name := .image.repository -}}
{{- if .image.registry }}{{ $name = printf "%s/%s" .image.registry $name }}{{ end -}}
{{- if .image.digest -}}
{{- printf "%s@%s" $name .image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (.image.tag | default .tag) -}}
{{- end -}}
{{- end -}}

{{- define "revgate.serverImage" -}}
{{- include "revgate.image" (dict "image" .Values.image "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "revgate.toolsImage" -}}
{{- include "revgate.image" (dict "image" .Values.toolsImage "tag" "latest") -}}
{{- end -}}

{{- define "revgate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "revgate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "revgate.headlessName" -}}{{ include "revgate.fullname" . }}-headless{{- end -}}

{{- define "revgate.scheme" -}}{{ ternary "https" "http" .Values.tls.client.enabled }}{{- end -}}

{{/* Below this all members' own names are. */}}
{{- define "revgate.headlessDomain" -}}
{{- printf "%s.%s.svc.%s" (include "revgate.headlessName" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "revgate.serviceHost" -}}
{{- printf "%s.%s.svc.%s" (include "revgate.fullname" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "revgate.endpoint" -}}
{{- printf "%s://%s:%d" (include "revgate.scheme" .) (include "revgate.serviceHost" .) (int .Values.service.port) -}}
{{- end -}}

{{- define "revgate.tlsSecretName" -}}
{{- .Values.tls.client.existingSecret | default (printf "%s-tls" (include "revgate.fullname" .)) -}}
{{- end -}}

{{- define "revgate.jobsSecretName" -}}
{{- with .Values.tls.client -}}
{{- if .jobsSecret -}}
{{- .jobsSecret -}}
{{- else if .certManager.enabled -}}
{{- include "revgate.fullname" $ }}-jobs-tls
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "revgate.configName" -}}{{ include "revgate.fullname" . }}-config{{- end -}}

{{/* The options that config.* has names of its own for, by their names. */}}
{{- define "revgate.configOwn" -}}
{{- with .Values.config -}}
quota-backend-bytes: {{ .quotaBackendBytes | int64 }}
auto-compaction-mode: {{ .autoCompaction.mode }}
auto-compaction-retention: {{ .autoCompaction.retention | quote }}
snapshot-count: {{ .snapshotCount | int64 }}
max-txn-ops: {{ .maxTxnOps | int64 }}
max-request-bytes: {{ .maxRequestBytes | int64 }}
max-connections: {{ .maxConnections | int64 }}
drain-timeout: {{ .drainTimeoutSeconds | int64 }}s
log-level: {{ .logLevel }}
log-format: {{ .logFormat }}
{{- end -}}
{{- end -}}

{{/* All of the file. Helm reads numbers as floats: they are written out. */}}
{{- define "revgate.configFile" -}}
{{- include "revgate.configOwn" . }}
{{- range $name, $value := .Values.config.settings }}
{{ $name }}: {{ if kindIs "float64" $value }}{{ $value | int64 }}{{ else }}{{ $value | toJson }}{{ end }}
{{- end }}
{{- end -}}

{{- define "revgate.authSecretName" -}}
{{- .Values.auth.existingSecret | default (printf "%s-auth" (include "revgate.fullname" .)) -}}
{{- end -}}

{{/* What a probe does: {root, path}. Where clients need certificates the kubelet has none: it only connects. */}}
{{- define "revgate.probeAction" -}}
{{- if .root.Values.metrics.ownPort.enabled -}}
httpGet:
  path: {{ .path }}
  port: metrics
{{- else if .root.Values.tls.client.clientCertAuth -}}
tcpSocket:
  port: client
{{- else -}}
httpGet:
  path: {{ .path }}
  port: client
  scheme: {{ include "revgate.scheme" .root | upper }}
{{- end -}}
{{- end -}}

{{/* Whom this chart's jobs trust, and what they show: volumes, and mounts below /etc/revgate. */}}
{{- define "revgate.jobVolumes" -}}
{{- if .Values.tls.client.enabled }}
- name: ca
  secret:
    secretName: {{ include "revgate.tlsSecretName" . }}
    defaultMode: 0440
    items:
      - key: ca.crt
        path: ca.crt
{{- if .Values.tls.client.clientCertAuth }}
- name: jobs-tls
  secret:
    secretName: {{ include "revgate.jobsSecretName" . }}
    defaultMode: 0440
{{- end }}
{{- end }}
{{- end -}}

{{- define "revgate.jobMounts" -}}
{{- if .Values.tls.client.enabled }}
- name: ca
  mountPath: /etc/revgate/ca
  readOnly: true
{{- if .Values.tls.client.clientCertAuth }}
- name: jobs-tls
  mountPath: /etc/revgate/jobs-tls
  readOnly: true
{{- end }}
{{- end }}
{{- end -}}

{{/* The environment of a job that asks by curl. */}}
{{- define "revgate.curlEnv" -}}
- name: ENDPOINT
  value: {{ include "revgate.endpoint" . }}
- name: TLS_FLAGS
  value: {{ if .Values.tls.client.enabled -}}
    "--cacert /etc/revgate/ca/ca.crt
    {{- if .Values.tls.client.clientCertAuth }} --cert /etc/revgate/jobs-tls/tls.crt --key /etc/revgate/jobs-tls/tls.key{{ end }}"
  {{- else }}""{{ end }}
{{- if .Values.auth.enabled }}
- name: ROOT_PASSWORD
  valueFrom:
    secretKeyRef:
      name: {{ include "revgate.authSecretName" . }}
      key: {{ .Values.auth.existingSecretKey }}
{{- end }}
{{- end -}}

{{/* Beginning of a script that asks by curl. */}}
{{- define "revgate.curlScript" -}}
set -eu
call() {
    # TLS_FLAGS is several words.
    curl -sS --fail-with-body --max-time 30 $TLS_FLAGS "$@"
}
{{- if .Values.auth.enabled }}
json_text() { printf '"%s"' "$(printf '%s' "$1" | sed 's/[\\"]/\\&/g')"; }
root() { printf '{"name":"root","password":%s}' "$(json_text "$ROOT_PASSWORD")"; }
{{- end }}
{{- end -}}

{{/* The pod of a job: what goes beside its containers. */}}
{{- define "revgate.jobPod" -}}
serviceAccountName: {{ include "revgate.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* So that the network policy lets jobs in. */}}
{{- define "revgate.clientLabel" -}}
{{ include "revgate.fullname" . }}-client: "true"
{{- end -}}
