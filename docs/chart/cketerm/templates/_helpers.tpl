{{- define "cketerm.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "cketerm.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cketerm.common" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "cketerm.labels" -}}
{{ include "cketerm.selector" . }}
{{ include "cketerm.common" . }}
{{- end }}

{{- define "cketerm.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end -}}
{{- end }}

{{- define "cketerm.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ default (include "cketerm.fullname" .) .Values.serviceAccount.name }}
{{- else -}}{{ required "serviceAccount.name is required where serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end -}}
{{- end }}

{{- define "cketerm.secret" -}}
{{- default (include "cketerm.fullname" .) .Values.config.existingSecret -}}
{{- end }}

{{- /* Text of the configuration file. */ -}}
{{- define "cketerm.config" -}}
{{- $settings := deepCopy .Values.config.settings -}}
{{- $etcd := default dict $settings.etcd -}}
{{- if not $etcd.endpoints -}}
{{- fail "config.settings.etcd.endpoints is empty: the chart brings no etcd. Name an etcd that exists (docs/how-to/own-etcd.md), or give config.existingSecret" -}}
{{- end -}}
{{- $kubernetes := merge dict (default dict $settings.kubernetes) (dict "in_cluster" true) -}}
{{- $engine := deepCopy (default dict $settings.engine) -}}
{{- /* `cketerm power …` reaches the API server as the engine does. Commands get only the variables that are named. */ -}}
{{- $api := list "KUBERNETES_SERVICE_HOST" "KUBERNETES_SERVICE_PORT" -}}
{{- $_ := set $engine "command_env" (uniq (concat (default list $engine.command_env) $api)) -}}
{{- toYaml (merge (dict "kubernetes" $kubernetes "engine" $engine) $settings) -}}
{{- end }}
