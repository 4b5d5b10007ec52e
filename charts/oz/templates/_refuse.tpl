{{/*
Values of the original Oz's chart that have another name here, or none. Taking them silently would
leave a setting without effect; so each is refused, with what to write instead. Included at the head of
what Helm renders first, the templates in directories: with `--reuse-values` those of the original are all
there is.
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
{{- if (.Values.metrics | default dict).includeUserLabel -}}{{- $messages = append $messages "metrics.includeUserLabel: metrics name nobody, the audit records do; remove it" -}}{{- end -}}
{{- if $messages -}}
{{- fail (printf "values of the original Oz's chart:\n  %s" (join "\n  " $messages)) -}}
{{- end -}}
{{- include "oz.refuseEarlier" . -}}
{{- end -}}

{{/*
Values of earlier revisions of this chart with another name now: `helm upgrade --reuse-values` brings them along, and not
the new ones. docs/reference/renamed.md has the same names.
*/}}
{{- define "oz.refuseEarlier" -}}
{{- $renamed := dict
  "composites.adoptAsOriginal" "composites.adoptAllMatching"
  "gate.withdraw" "gate.unregisterWhenUnavailable"
  "operator.cutSessions" "operator.terminateSessions"
  "transient.maxBindingWindowIn" "transient.maxBindingWindowByNamespace"
  "uninstall.patience" "uninstall.timeout"
  "webhook.breakGlassReview.within" "webhook.breakGlassReview.deadline"
-}}
{{- $messages := list -}}
{{- range $old, $new := $renamed -}}
{{- $parts := splitList "." $old -}}
{{- $section := $.Values -}}
{{- range initial $parts -}}
{{- $section = get ($section | default dict) . -}}
{{- end -}}
{{- if hasKey ($section | default dict) (last $parts) -}}
{{- $messages = append $messages (printf "%s: set %s" $old $new) -}}
{{- end -}}
{{- end -}}
{{- range $name, $check := (.Values.tickets | default dict).checks -}}
{{- if hasKey $check "every" -}}{{- $messages = append $messages (printf "tickets.checks.%s.every: set tickets.checks.%s.interval" $name $name) -}}{{- end -}}
{{- if hasKey $check "whenAway" -}}{{- $messages = append $messages (printf "tickets.checks.%s.whenAway: set tickets.checks.%s.failurePolicy, to Fail instead of Refuse, or to Ignore instead of Allow" $name $name) -}}{{- end -}}
{{- end -}}
{{- if $messages -}}
{{- fail (printf "values of an earlier release of oz's chart:\n  %s\nRename those that you set. With --reset-then-reuse-values instead of --reuse-values, helm takes only the values that you set from the earlier release" (join "\n  " (sortAlpha $messages))) -}}
{{- end -}}
{{- end -}}

{{/*
What is given in a namespace is ended by the operator, which does nothing in one that is not listed: what
lives there would live for ever.
*/}}
{{- define "oz.refuseToLeave" -}}
{{- if .Values.access.namespaces -}}
{{- $left := list -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "RoleBinding" "" "").items -}}
{{- $labels := .metadata.labels | default dict -}}
{{- if and (eq (get $labels "app.kubernetes.io/managed-by") "oz") (hasKey $labels "oz.wizardofoz.co/owner-uid") (not (has .metadata.namespace $.Values.access.namespaces)) -}}
{{- $left = append $left (printf "rolebinding %s --namespace %s" .metadata.name .metadata.namespace) -}}
{{- end -}}
{{- end -}}
{{- if .Capabilities.APIVersions.Has "crds.wizardofoz.co/v1alpha1/TransientRoleBinding" -}}
{{- range (lookup "crds.wizardofoz.co/v1alpha1" "TransientRoleBinding" "" "").items -}}
{{- if not (has .metadata.namespace $.Values.access.namespaces) -}}
{{- $left = append $left (printf "transientrolebindings.crds.wizardofoz.co %s --namespace %s" .metadata.name .metadata.namespace) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $left -}}
{{- fail (printf "access.namespaces: oz would leave behind, and never end:\n  %s\nList their namespaces until this is over, or delete first, while oz still looks there, what asked for it: access requests and transient bindings" (join "\n  " (sortAlpha $left))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
