{{/*
Values of the original Oz's chart that have another name here, or none. Taking them silently would
leave a setting without effect; so each is refused, with what to write instead.
*/}}
{{- define "oz.refuse" -}}
{{- $messages := list -}}
{{- with .Values.controllerManager -}}
{{- if hasKey . "replicas" -}}{{- $messages = append $messages "controllerManager.replicas: set operator.replicas and webhook.replicas" -}}{{- end -}}
{{- if hasKey . "tolerations" -}}{{- $messages = append $messages "controllerManager.tolerations: set operator.tolerations and webhook.tolerations" -}}{{- end -}}
{{- if hasKey . "nodeSelector" -}}{{- $messages = append $messages "controllerManager.nodeSelector: set operator.nodeSelector and webhook.nodeSelector" -}}{{- end -}}
{{- with .manager -}}
{{- if hasKey . "image" -}}{{- $messages = append $messages "controllerManager.manager.image: set image.repository and image.tag" -}}{{- end -}}
{{- if hasKey . "resources" -}}{{- $messages = append $messages "controllerManager.manager.resources: set operator.resources and webhook.resources" -}}{{- end -}}
{{- end -}}
{{- if not $messages -}}{{- $messages = append $messages "controllerManager: set operator and webhook" -}}{{- end -}}
{{- end -}}
{{- if hasKey .Values "metricsService" -}}{{- $messages = append $messages "metricsService: set metrics.service" -}}{{- end -}}
{{- if hasKey .Values "webhookService" -}}{{- $messages = append $messages "webhookService: set webhook.service" -}}{{- end -}}
{{- with .Values.webhook -}}
{{- if and (hasKey . "create") (not .create) -}}{{- $messages = append $messages "webhook.create=false: requests that are not stamped are never granted; remove it" -}}{{- end -}}
{{- if hasKey . "secret" -}}{{- $messages = append $messages "webhook.secret: the webhook makes its certificates itself and writes no key to a disk; remove it" -}}{{- end -}}
{{- if .certManager -}}{{- $messages = append $messages "webhook.certManager: the webhook makes its certificates itself; remove it" -}}{{- end -}}
{{- if hasKey . "podExecWatcher" -}}{{- $messages = append $messages "webhook.podExecWatcher: who may connect is decided by namespace, with the label oz.wizardofoz.co/enforce=true; remove it" -}}{{- end -}}
{{- end -}}
{{- if .Values.metrics.includeUserLabel -}}{{- $messages = append $messages "metrics.includeUserLabel: metrics name nobody, the audit records do; remove it" -}}{{- end -}}
{{- if $messages -}}
{{- fail (printf "values of the original Oz's chart:\n  %s" (join "\n  " $messages)) -}}
{{- end -}}
{{- end -}}
