{{- /* A worker's settings as YAML: its own values over workerDefaults. Argument: (dict "root" $ "own" $own).
       Key by key rather than by a merge, for which 0, false and [] are as good as nothing. */ -}}

{{- define "faultline.worker" -}}
{{- $own := .own -}}
{{- $worker := dict -}}
{{- range $key, $usual := .root.Values.workerDefaults -}}
{{- if not (hasKey $own $key) -}}
{{- $_ := set $worker $key $usual -}}
{{- else if ne $key "autoscaling" -}}
{{- $_ := set $worker $key (get $own $key) -}}
{{- else -}}
{{- $scaling := dict -}}
{{- range $inner, $value := $usual -}}
{{- $_ := set $scaling $inner (ternary (get $own.autoscaling $inner) $value (hasKey $own.autoscaling $inner)) -}}
{{- end -}}
{{- $_ := set $worker $key $scaling -}}
{{- end -}}
{{- end -}}
{{- toYaml $worker -}}
{{- end -}}
