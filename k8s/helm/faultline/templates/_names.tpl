{{- /* Names of objects. A release named "faultline" creates faultline-api and so on; "shop" creates shop-faultline-api. */ -}}

{{- define "faultline.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 32 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 32 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 32 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "faultline.image" -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}

{{- define "faultline.serviceAccount" -}}
{{- default (include "faultline.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- /* Labels that select pods; they cannot be changed later. Argument: (dict "root" $ "component" "api") */ -}}
{{- define "faultline.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- if .component }}
app.kubernetes.io/component: {{ .component }}
{{- end }}
{{- if .worker }}
faultline/worker: {{ .worker }}
{{- end }}
{{- end -}}

{{- define "faultline.labels" -}}
{{ include "faultline.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- if .root.Values.commonLabels }}
{{ toYaml .root.Values.commonLabels }}
{{- end }}
{{- end -}}
