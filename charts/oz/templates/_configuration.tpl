{{/*
The configuration of all processes: the sections of the values, without the values that concern the chart alone. A new
field of a section needs no line here. Empty text stands for a field that is not set.
*/}}
{{- define "oz.configuration" -}}
{{- $all := pick .Values "log" "outbound" "access" "transient" "composites" "audit" "notifications" "tickets" "operator" "webhook" "gate" "harness" | deepCopy -}}
{{- include "oz.withoutEmpty" $all -}}
{{- range list "composites" "gate" "harness" -}}
{{- if not (get $all . | default dict).enabled -}}{{- $_ := unset $all . -}}{{- end -}}
{{- end -}}
{{- range $component := list $all.operator $all.webhook $all.gate ($all.harness).broker | compact -}}
{{- range list "replicas" "groups" "hostNetwork" "extraArgs" "resources" "podDisruptionBudget" "podAnnotations" "podLabels" "serviceAccountAnnotations" "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "revisionHistoryLimit" "deploymentAnnotations" "podSecurityContext" "securityContext" "extraEnv" -}}
{{- $_ := unset $component . -}}
{{- end -}}
{{- end -}}
{{- range list $all.webhook $all.gate | compact -}}
{{- $_ := unset . "port" -}}
{{- with .service -}}{{- $_ := unset . "annotations" -}}{{- end -}}
{{- end -}}
{{- with $all.composites -}}
{{- $_ := unset . "defaultAccount" -}}
{{- /* A label may have an empty value. */ -}}
{{- $_ := set . "selector" ($.Values.composites.selector | default dict) -}}
{{- end -}}
{{- with ($all.gate).recordings -}}
{{- $_ := unset . "volume" -}}
{{- with .webIdentity -}}{{- $_ := unset . "audience" -}}{{- end -}}
{{- end -}}
{{- with $all.harness -}}
{{- $_ := set . "pullPolicy" .image.pullPolicy -}}
{{- $_ := set . "image" (include "oz.harnessImage" $) -}}
{{- $_ := set . "gitImage" (include "oz.gitImage" $) -}}
{{- $_ := set . "seedDeniedRanges" (include "oz.seedDeniedRanges" $ | fromYamlArray) -}}
{{- $_ := set .broker "labels" (include "oz.selector" (list $ "broker") | fromYaml) -}}
{{- $_ := unset .broker "service" -}}
{{- end -}}
{{- $_ := set $all "installation" (dict "name" (include "oz.fullname" .) "policies" .Values.policies.create) -}}
apiVersion: config.oz.wizardofoz.co/v1alpha1
kind: OzConfiguration
{{ toYaml $all }}
{{- end -}}

{{/* Removes fields without a value, and those with an empty text, from a dict. */}}
{{- define "oz.withoutEmpty" -}}
{{- range $name, $value := . -}}
{{- if kindIs "map" $value -}}
{{- include "oz.withoutEmpty" $value -}}
{{- else if kindIs "slice" $value -}}
{{- range $value -}}{{- if kindIs "map" . -}}{{- include "oz.withoutEmpty" . -}}{{- end -}}{{- end -}}
{{- else if or (kindIs "invalid" $value) (eq (toString $value) "") -}}
{{- $_ := unset $ $name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
The digest of the sections that a component reads, as the component computes it: a pod is replaced if one of its sections
changes. Takes [root, component]; the sections are those of crates/config/src/component.rs.
*/}}
{{- define "oz.configurationDigest" -}}
{{- $sections := dict
  "operator" (list "installation" "log" "outbound" "access" "transient" "composites" "audit" "notifications" "tickets" "operator" "webhook" "gate" "harness")
  "webhook" (list "installation" "log" "outbound" "access" "transient" "composites" "audit" "notifications" "webhook" "harness")
  "gate" (list "installation" "log" "outbound" "access" "audit" "notifications" "gate")
  "broker" (list "installation" "log" "outbound" "audit" "notifications" "harness")
-}}
{{- $configuration := include "oz.configuration" (index . 0) | fromYaml -}}
{{- $text := "" -}}
{{- range get $sections (index . 1) -}}
{{- $text = printf "%s%s=%s\n" $text . (index $configuration . | toRawJson) -}}
{{- end -}}
{{- sha256sum $text -}}
{{- end -}}
