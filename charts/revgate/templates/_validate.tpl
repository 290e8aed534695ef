{{/* What one value means for another. Each refusal says what to change. values.schema.json looks at values one by one. */}}
{{- define "revgate.validate" -}}
{{- $client := .Values.tls.client -}}
{{- if and (gt (int .Values.replicaCount) 1) (not .Values.experimental.cluster) -}}
{{- fail (printf "replicaCount is %d: revgate has one voting member for now, so that a second would hold data of its own. Set it to 1. (experimental.cluster=true draws what a cluster will look like; do not install it.)" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.config.drainTimeoutSeconds) -}}
{{- fail (printf "terminationGracePeriodSeconds is %d and config.drainTimeoutSeconds %d: a member would be killed while it waits for its clients. Make the first longer." (int .Values.terminationGracePeriodSeconds) (int .Values.config.drainTimeoutSeconds)) -}}
{{- end -}}
{{- $set := list "name" "config-file" "data-dir" "listen-client-urls" "advertise-client-urls" "listen-metrics-urls" "listen-peer-urls" "initial-advertise-peer-urls" "initial-cluster" "cert-file" "key-file" "trusted-ca-file" "client-cert-auth" "tls-min-version" "client-transport-security" "auth-token" "auth-token-ttl" -}}
{{- $own := keys (include "revgate.configOwn" . | fromYaml) -}}
{{- range $name, $value := .Values.config.settings -}}
{{- if has $name $set -}}
{{- fail (printf "config.settings has %s, which the chart sets itself, from tls, auth, metrics and the pod. Take it away." $name) -}}
{{- else if has $name $own -}}
{{- fail (printf "config.settings has %s, for which config has a name of its own. Use that." $name) -}}
{{- end -}}
{{- end -}}
{{- if $client.enabled -}}
{{- if and (not $client.existingSecret) (not $client.certManager.enabled) -}}
{{- fail "tls.client.enabled needs a certificate: set tls.client.existingSecret, or tls.client.certManager.enabled." -}}
{{- end -}}
{{- if and $client.existingSecret $client.certManager.enabled -}}
{{- fail "tls.client.existingSecret and tls.client.certManager.enabled are both set: the certificate comes from one of them." -}}
{{- end -}}
{{- if and $client.certManager.enabled (not $client.certManager.issuerRef.name) -}}
{{- fail "tls.client.certManager.enabled needs tls.client.certManager.issuerRef.name." -}}
{{- end -}}
{{- if $client.clientCertAuth -}}
{{- $asks := list -}}
{{- if .Values.auth.enabled }}{{ $asks = append $asks "auth.enabled" }}{{ end -}}
{{- if .Values.backup.enabled }}{{ $asks = append $asks "backup.enabled" }}{{ end -}}
{{- if and $asks (not (include "revgate.jobsSecretName" .)) -}}
{{- fail (printf "tls.client.clientCertAuth with %s needs tls.client.jobsSecret: the job has to show a certificate." (join " and " $asks)) -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.ownPort.enabled) (not .Values.metrics.serviceMonitor.tlsConfig) -}}
{{- fail "tls.client.clientCertAuth with metrics.serviceMonitor.enabled needs metrics.ownPort.enabled, or metrics.serviceMonitor.tlsConfig with a certificate that Prometheus shows." -}}
{{- end -}}
{{- end -}}
{{- else if or $client.existingSecret $client.certManager.enabled $client.clientCertAuth $client.jobsSecret -}}
{{- fail "tls.client has a certificate or clientCertAuth, and tls.client.enabled is false: clients would be served without TLS. Set it to true, or take the others away." -}}
{{- end -}}
{{- if .Values.auth.enabled -}}
{{- if and (not .Values.auth.rootPassword) (not .Values.auth.existingSecret) -}}
{{- fail "auth.enabled needs root's password: set auth.rootPassword, or auth.existingSecret." -}}
{{- end -}}
{{- if and .Values.auth.rootPassword .Values.auth.existingSecret -}}
{{- fail "auth.rootPassword and auth.existingSecret are both set: the password comes from one of them." -}}
{{- end -}}
{{- else if or .Values.auth.rootPassword .Values.auth.existingSecret -}}
{{- fail "auth has a password, and auth.enabled is false: everybody could write. Set it to true, or take the password away." -}}
{{- end -}}
{{- if and (eq .Values.auth.token.type "jwt") (not .Values.auth.token.jwt.existingSecret) -}}
{{- fail "auth.token.type is jwt: set auth.token.jwt.existingSecret to a secret with jwt.pub and jwt.key." -}}
{{- end -}}
{{- if and .Values.metrics.ownPort.enabled (eq (int .Values.metrics.ownPort.port) 2379 2380) -}}
{{- fail (printf "metrics.ownPort.port is %d, which is the port of clients or of members. Take another." (int .Values.metrics.ownPort.port)) -}}
{{- end -}}
{{- if and .Values.service.nodePort (eq .Values.service.type "ClusterIP") -}}
{{- fail "service.nodePort is set, and service.type is ClusterIP, which has none. Set service.type to NodePort or LoadBalancer." -}}
{{- end -}}
{{- end -}}
