{{- /* Parts of every pod. */ -}}

{{- define "faultline.podMetadata" -}}
labels:
  {{- include "faultline.selector" . | nindent 2 }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  {{- if .root.Values.commonLabels }}
  {{- toYaml .root.Values.commonLabels | nindent 2 }}
  {{- end }}
{{- if .root.Values.podAnnotations }}
annotations:
  {{- toYaml .root.Values.podAnnotations | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Argument: (dict "root" $ "component" … "worker" … "serviceAccount" … "nodeSelector" … "tolerations" …). */ -}}
{{- define "faultline.podSettings" -}}
serviceAccountName: {{ .serviceAccount }}
automountServiceAccountToken: false
# Otherwise a Service named faultline-api would set FAULTLINE_API_PORT to tcp://…, which `faultline api` reads as its port.
enableServiceLinks: false
# So the process is not PID 1: a SIGTERM while Python starts ends it instead of being ignored.
shareProcessNamespace: true
securityContext:
  {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- if .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml .root.Values.image.pullSecrets | nindent 2 }}
{{- end }}
{{- if .root.Values.priorityClassName }}
priorityClassName: {{ .root.Values.priorityClassName }}
{{- end }}
{{- if .nodeSelector }}
nodeSelector:
  {{- toYaml .nodeSelector | nindent 2 }}
{{- end }}
{{- if .tolerations }}
tolerations:
  {{- toYaml .tolerations | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "faultline.spread" -}}
{{- if .root.Values.topologySpread.keys }}
{{- $about := . }}
topologySpreadConstraints:
  {{- range .root.Values.topologySpread.keys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $about.root.Values.topologySpread.whenUnsatisfiable }}
    # Old and new pods of a rollout are counted separately.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "faultline.selector" $about | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}
