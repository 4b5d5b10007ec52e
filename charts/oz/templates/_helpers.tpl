{{/* What names of objects begin with. */}}
{{- define "oz.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are selected: they never change. Takes [root, component]. */}}
{{- define "oz.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels. Takes [root, component]. */}}
{{- define "oz.labels" -}}
{{- $root := index . 0 -}}
{{ include "oz.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "oz.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "oz.priorityClass" -}}
{{- if .Values.priorityClass.name -}}
{{- .Values.priorityClass.name -}}
{{- else if .Values.priorityClass.create -}}
{{- include "oz.fullname" . -}}
{{- end -}}
{{- end -}}

{{/* What a pod of ours may not do: Kubernetes' profile "restricted", and a root that cannot be written. */}}
{{- define "oz.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "oz.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "oz.environment" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: OZ_LOG
  value: {{ .Values.log.filter | quote }}
- name: OZ_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
{{- end -}}

{{/* On which nodes pods can be, and how much they matter. Takes [root, values of a component]. */}}
{{- define "oz.placement" -}}
{{- $root := index . 0 -}}
{{- $values := index . 1 -}}
{{- with include "oz.priorityClass" $root -}}
priorityClassName: {{ . }}
{{ end -}}
nodeSelector:
  {{- toYaml (merge (dict "kubernetes.io/os" "linux") ($values.nodeSelector | default dict)) | nindent 2 }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Where the pods of hooks go: where the operator's can, but not away from or close to others. */}}
{{- define "oz.hookPlacement" -}}
{{ include "oz.placement" (list . .Values.operator) }}
{{- with (.Values.operator.affinity | default dict).nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* Where pods go. Takes [root, component, its values]. */}}
{{- define "oz.scheduling" -}}
{{- $values := index . 2 -}}
{{ include "oz.placement" (list (index . 0) $values) }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "oz.selector" $ | nindent 8 }}
  {{- end }}
  {{- end }}
{{- end -}}

{{/* When the rights of what uninstalls exist. */}}
{{- define "oz.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}

{{/* The flags by which transient bindings are allowed: operator and webhook have the same. */}}
{{- define "oz.transient" -}}
{{- with .Values.transient.bindableRoles -}}
- --bindable-roles={{ join "," . }}
- --max-binding-window={{ $.Values.transient.maxBindingWindow }}
{{- range $namespace, $window := $.Values.transient.maxBindingWindowIn }}
- --max-binding-window-in={{ $namespace }}={{ $window }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The flags about the audit trail that operator and webhook have both. */}}
{{- define "oz.audit" -}}
- --audit-objects={{ .Values.audit.objects }}
- --audit-checkpoint={{ .Values.audit.checkpoint }}
{{- with .Values.audit.http }}
{{- if .url }}
- --audit-http={{ .url }}
- --audit-http-spool={{ int .spool }}
{{- if .required }}
- --audit-http-required
{{- end }}
{{- if and .secret.name .secret.token }}
- --audit-http-token-file=/etc/oz/collector/{{ .secret.token }}
{{- end }}
{{- if and .secret.name .secret.ca }}
- --audit-http-ca=/etc/oz/collector/{{ .secret.ca }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Where the files that those flags name are, in a container and in its pod. */}}
{{- define "oz.auditMounts" -}}
{{- if and .Values.audit.http.url .Values.audit.http.secret.name -}}
volumeMounts:
  - name: collector
    mountPath: /etc/oz/collector
    readOnly: true
{{- end -}}
{{- end -}}

{{- define "oz.auditVolumes" -}}
{{- if and .Values.audit.http.url .Values.audit.http.secret.name -}}
volumes:
  - name: collector
    secret:
      secretName: {{ .Values.audit.http.secret.name }}
{{- end -}}
{{- end -}}
