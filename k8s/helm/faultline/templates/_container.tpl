{{- /* Parts of every container: image, database URL as a file, writable volumes. */ -}}

{{- /* The authorization of a PodMonitor by the metrics token; empty if there is none. */ -}}
{{- define "faultline.metricsAuthorization" -}}
{{- with .Values.monitoring.metricsToken }}
{{- if .secretName }}
authorization:
  type: Bearer
  credentials:
    name: {{ .secretName }}
    key: {{ .key }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "faultline.containerSettings" -}}
image: {{ include "faultline.image" .root | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
# Not the image's entrypoint, so that signals reach Faultline itself.
command: [faultline]
securityContext:
  {{- toYaml .root.Values.containerSecurityContext | nindent 2 }}
{{- end -}}

{{- /* Argument: (dict "root" $ "app" true "health" true "retention" true "metrics" true). */ -}}
{{- define "faultline.environment" -}}
- name: DATABASE_URL_FILE
  value: /run/secrets/faultline/database-url
{{- if .root.Values.database.ca.secretName }}
- name: PGSSLMODE
  value: verify-full
- name: PGSSLROOTCERT
  value: /run/secrets/faultline-ca/ca.crt
{{- end }}
{{- if .app }}
- name: FAULTLINE_APP
  value: {{ required "app is the MODULE:NAME of your Faultline object" .root.Values.app | quote }}
{{- end }}
{{- if .health }}
- name: FAULTLINE_HEALTH_FILE
  value: /run/faultline/health
{{- end }}
{{- if .retention }}
- name: FAULTLINE_KEEP_SUCCEEDED_DAYS
  value: {{ .root.Values.retention.succeededDays | quote }}
- name: FAULTLINE_KEEP_FAILED_DAYS
  value: {{ .root.Values.retention.failedDays | quote }}
- name: FAULTLINE_KEEP_LEDGER_DAYS
  value: {{ .root.Values.retention.ledgerDays | quote }}
- name: FAULTLINE_KEEP_AUDIT_DAYS
  value: {{ .root.Values.retention.auditDays | quote }}
{{- end }}
{{- if and .metrics .root.Values.monitoring.metricsToken.secretName }}
- name: FAULTLINE_METRICS_TOKEN_FILE
  value: /run/secrets/faultline-metrics/token
{{- end }}
{{- if .root.Values.tracing.endpoint }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .root.Values.tracing.endpoint | quote }}
{{- end }}
{{- end -}}

{{- /* Argument: (dict "root" $ "health" true "metrics" true). */ -}}
{{- define "faultline.mounts" -}}
- name: database-url
  mountPath: /run/secrets/faultline
  readOnly: true
{{- if and .metrics .root.Values.monitoring.metricsToken.secretName }}
- name: metrics-token
  mountPath: /run/secrets/faultline-metrics
  readOnly: true
{{- end }}
{{- if .root.Values.database.ca.secretName }}
- name: database-ca
  mountPath: /run/secrets/faultline-ca
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- if .health }}
- name: health
  mountPath: /run/faultline
{{- end }}
{{- end -}}

{{- /* Argument: (dict "root" $ "secret" .Values.database.secrets.worker "health" true "metrics" true). */ -}}
{{- define "faultline.volumes" -}}
- name: database-url
  secret:
    secretName: {{ .secret.name }}
    defaultMode: 0440
    items:
      - key: {{ .secret.key }}
        path: database-url
{{- if and .metrics .root.Values.monitoring.metricsToken.secretName }}
- name: metrics-token
  secret:
    secretName: {{ .root.Values.monitoring.metricsToken.secretName }}
    defaultMode: 0440
    items:
      - key: {{ .root.Values.monitoring.metricsToken.key }}
        path: token
{{- end }}
{{- if .root.Values.database.ca.secretName }}
- name: database-ca
  secret:
    secretName: {{ .root.Values.database.ca.secretName }}
    defaultMode: 0444
    items:
      - key: {{ .root.Values.database.ca.key }}
        path: ca.crt
{{- end }}
- name: tmp
  emptyDir:
    medium: Memory
    sizeLimit: 64Mi
{{- if .health }}
- name: health
  emptyDir:
    medium: Memory
    sizeLimit: 1Mi
{{- end }}
{{- end -}}
