{{/* The prefix of the names of objects. A release may have dots in its name, and begin with a digit; a
Service may not. */}}
{{- define "oz.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- $full := .Values.fullnameOverride -}}
{{- if not $full -}}
{{- $full = contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) | replace "." "-" -}}
{{- end -}}
{{- if regexMatch "^[^a-z]" $full -}}
{{- $full = printf "oz-%s" $full -}}
{{- end -}}
{{- $full | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels by which pods are selected: they never change. Takes [root, component]. */}}
{{- define "oz.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* All labels. Takes [root, component], and further labels of the object, which come before those of
all objects; the schema keeps both from repeating ours. */}}
{{- define "oz.labels" -}}
{{- $root := index . 0 -}}
{{- $more := dict -}}
{{- if gt (len .) 2 -}}
{{- $more = index . 2 | default dict -}}
{{- end -}}
{{ include "oz.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with merge dict $more ($root.Values.commonLabels | default dict) }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "oz.image" -}}
{{- include "oz.imageName" (list . .Values.image .Chart.AppVersion) -}}
{{- end -}}

{{/* The image of our container in the pods of harness runs. */}}
{{- define "oz.harnessImage" -}}
{{- include "oz.imageName" (list . .Values.harness.image .Chart.AppVersion) -}}
{{- end -}}

{{/* By what repositories are cloned; empty if nothing was said. */}}
{{- define "oz.gitImage" -}}
{{- $image := .Values.harness.gitImage -}}
{{- if and $image.repository (required "harness.gitImage needs a digest or a tag" (coalesce $image.digest $image.tag)) -}}
{{- include "oz.imageName" (list . $image "") -}}
{{- end -}}
{{- end -}}

{{/* The name of an image. Takes [root; its registry, repository, tag and digest; the tag where it has neither]. */}}
{{- define "oz.imageName" -}}
{{- $image := index . 1 -}}
{{- $repository := $image.repository -}}
{{- with coalesce ((index . 0).Values.global | default dict).imageRegistry $image.registry -}}
{{- /* As in the names of images, the first part is a host if it has a dot or a port, or is localhost. */ -}}
{{- $repository = printf "%s/%s" . (regexReplaceAll "^(localhost|[^/]*[.:][^/]*)/" $repository "") -}}
{{- end -}}
{{- if $image.digest -}}
{{ $repository }}@{{ $image.digest }}
{{- else -}}
{{ $repository }}:{{ default (index . 2) $image.tag }}
{{- end -}}
{{- end -}}

{{/* The PriorityClass of all pods. A value cannot be changed: another one has another name. */}}
{{- define "oz.priorityClass" -}}
{{- if .Values.priorityClass.name -}}
{{- .Values.priorityClass.name -}}
{{- else if .Values.priorityClass.create -}}
{{- printf "%s-%d" (include "oz.fullname" .) (int64 .Values.priorityClass.value) -}}
{{- end -}}
{{- end -}}

{{/* The security context of pods. The values can add to the profile "restricted" of Kubernetes, and not remove from it.
Takes the values of a component or a hook; `helm upgrade --reuse-values` has none of an earlier release. */}}
{{- define "oz.podSecurity" -}}
{{- $given := (. | default dict).podSecurityContext | default (dict "runAsUser" 65532 "runAsGroup" 65532) -}}
{{- $context := dict -}}
{{- range $name, $value := $given -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $context $name $value -}}{{- end -}}
{{- end -}}
{{- $_ := set $context "runAsNonRoot" true -}}
{{- toYaml (merge $context (dict "seccompProfile" (dict "type" "RuntimeDefault"))) -}}
{{- end -}}

{{/* The security context of a container, with a root file system that is read-only. Takes what oz.podSecurity takes. */}}
{{- define "oz.containerSecurity" -}}
{{- $context := dict -}}
{{- range $name, $value := (. | default dict).securityContext -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $context $name $value -}}{{- end -}}
{{- end -}}
{{- $_ := set $context "allowPrivilegeEscalation" false -}}
{{- $_ := set $context "readOnlyRootFilesystem" true -}}
{{- $_ := set $context "capabilities" (dict "drop" (list "ALL")) -}}
{{- toYaml $context -}}
{{- end -}}

{{/* The environment of a container. Takes [the path of the values of a component or a hook, these values]. The schema
refuses the names of the variables here in `extraEnv`. */}}
{{- define "oz.environment" -}}
{{- $path := index . 0 -}}
{{- $more := (index . 1 | default dict).extraEnv -}}
{{- $names := list -}}
{{- range $more -}}
{{- if has .name $names -}}
{{- fail (printf "%s.extraEnv: %s occurs twice; remove one of the two" $path .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- /* The C library's allocator keeps what is freed in one pool, not in one for each thread. */}}
- name: MALLOC_ARENA_MAX
  value: "1"
{{- with $more }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Node selector, tolerations and priority of pods. Takes [root, values of a component]. */}}
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

{{/* The scheduling of the pods of hooks: the operator's, without affinity to other pods. */}}
{{- define "oz.hookPlacement" -}}
{{ include "oz.placement" (list . .Values.operator) }}
{{- with (.Values.operator.affinity | default dict).nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- end -}}

{{/* The scheduling of pods. Takes [root, component, its values]. */}}
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

{{/*
The volumes of a component's pods, as a list of dicts: `name`, the directory `at` in the container, `source`, and
`readOnly`. Secrets are at the directories that the component expects under /etc/oz. Takes [root, component].
*/}}
{{- define "oz.volumes" -}}
{{- $values := (index . 0).Values -}}
{{- $component := index . 1 -}}
{{- $recordings := eq $component "gate" | ternary (($values.gate).recordings | default dict) dict -}}
{{- $role := ($recordings.webIdentity | default dict).role -}}
{{- $bucket := ($recordings.secret | default dict).name -}}
{{- $secrets := list (list "proxy" "proxy" (($values.outbound | default dict).secret | default dict).name) -}}
{{- with $values.audit.http -}}
{{- $secrets = append $secrets (list "collector" "collector" (and .url (.secret | default dict).name)) -}}
{{- end -}}
{{- range $number, $route := ($values.notifications).routes -}}
{{- $secrets = append $secrets (list (printf "route-%d" $number) (printf "notifications/%s" $route.name) ($route.secret | default dict).name) -}}
{{- end -}}
{{- if eq $component "operator" -}}
{{- range $number, $name := keys (($values.tickets).checks | default dict) | sortAlpha -}}
{{- $check := get $values.tickets.checks $name -}}
{{- $secrets = append $secrets (list (printf "tickets-%d" $number) (printf "tickets/%s" $name) ($check.secret | default dict).name) -}}
{{- end -}}
{{- if ($values.composites).enabled -}}
{{- range $number, $host := keys ($values.composites.hookServers | default dict) | sortAlpha -}}
{{- $server := get $values.composites.hookServers $host -}}
{{- $secrets = append $secrets (list (printf "hooks-%d" $number) (printf "hooks/%s" $host) ($server.secret | default dict).name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $volumes := list (dict "name" "configuration" "at" "/etc/oz/configuration" "readOnly" true "source" (dict "configMap" (dict "name" (printf "%s-configuration" (include "oz.fullname" (index . 0)))))) -}}
{{- with $values.webhook.clientCA -}}
{{- if eq $component "webhook" -}}
{{- $volumes = append $volumes (dict "name" "client-ca" "at" "/etc/oz/client-ca" "readOnly" true "source" (dict "configMap" (dict "name" .))) -}}
{{- end -}}
{{- end -}}
{{- with $recordings.url -}}
{{- $size := div (mul 5 (int64 (dig "spool" "mebibytes" 1024 $recordings))) 4 -}}
{{- $volumes = append $volumes (dict "name" "spool" "at" "/var/lib/oz/spool" "source" (dict "emptyDir" (dict "sizeLimit" (printf "%dMi" $size)))) -}}
{{- if hasPrefix "file://" . -}}
{{- $volume := required "gate.recordings.volume: name the volume on which recordings are stored" ($recordings.volume | default nil) -}}
{{- $volumes = append $volumes (dict "name" "recordings" "at" "/var/lib/oz/recordings" "source" $volume) -}}
{{- else if $role -}}
{{- $token := dict "path" "token" "audience" ($recordings.webIdentity.audience | default "sts.amazonaws.com") "expirationSeconds" 3600 -}}
{{- $volumes = append $volumes (dict "name" "recordings-identity" "at" "/etc/oz/recordings-identity" "readOnly" true "source" (dict "projected" (dict "sources" (list (dict "serviceAccountToken" $token))))) -}}
{{- else if not $bucket -}}
{{- fail "gate.recordings.secret.name: name the Secret with access-key-id and secret-access-key for the bucket, or set gate.recordings.webIdentity.role" -}}
{{- end -}}
{{- if hasPrefix "s3://" . -}}
{{- $secrets = append $secrets (list "recordings" "recordings" $bucket) -}}
{{- end -}}
{{- end -}}
{{- range $secrets -}}
{{- if index . 2 -}}
{{- $volumes = append $volumes (dict "name" (index . 0) "at" (printf "/etc/oz/%s" (index . 1)) "readOnly" true "source" (dict "secret" (dict "secretName" (index . 2)))) -}}
{{- end -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{/* These volumes in the container, and in the pod. Take [root, component]. */}}
{{- define "oz.containerVolumes" -}}
volumeMounts:
{{- range include "oz.volumes" . | fromYamlArray }}
  - name: {{ .name }}
    mountPath: {{ .at }}
    {{- if .readOnly }}
    readOnly: true
    {{- end }}
{{- end }}
{{- end -}}

{{- define "oz.podVolumes" -}}
volumes:
{{- range include "oz.volumes" . | fromYamlArray }}
  - name: {{ .name }}
    {{- toYaml .source | nindent 4 }}
{{- end }}
{{- end -}}

{{/* How long a pod of the webhook may take to end, in seconds: it answers calls for `webhook.drain`, then
finishes those under way, for 30 seconds at most, and writes the last records. */}}
{{- define "oz.webhookGrace" -}}
{{- $zero := toDate "2006-01-02 MST" "1970-01-01 UTC" -}}
{{- add 40 (dateModify .Values.webhook.drain $zero | unixEpoch | int64) -}}
{{- end -}}

{{/* From where the API server comes to the webhook, as a list of NetworkPolicy peers: as given, or as the
cluster knows it. What leaves a node of the control plane through a tunnel bears the tunnel's address. */}}
{{- define "oz.apiServerPeers" -}}
{{- $peers := .Values.networkPolicy.apiServer -}}
{{- if not $peers -}}
{{- $addresses := list -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if eq (get (.metadata.labels | default dict) "kubernetes.io/service-name") "kubernetes" -}}
{{- range .endpoints -}}
{{- $addresses = concat $addresses .addresses -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if $addresses -}}
{{- range (lookup "v1" "Node" "" "").items -}}
{{- if hasKey (.metadata.labels | default dict) "node-role.kubernetes.io/control-plane" -}}
{{- range .spec.podCIDRs -}}
{{- $addresses = append $addresses (regexReplaceAll "/.*$" . "") -}}
{{- end -}}
{{- range $key, $value := .metadata.annotations -}}
{{- if regexMatch "^projectcalico.org/IPv[46].*TunnelAddr$" $key -}}
{{- $addresses = append $addresses $value -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $peers = list -}}
{{- range $addresses | uniq | sortAlpha -}}
{{- $peers = append $peers (dict "ipBlock" (dict "cidr" (printf "%s/%s" . (contains ":" . | ternary "128" "32")))) -}}
{{- end -}}
{{- $kubeSystem := dict "matchLabels" (dict "kubernetes.io/metadata.name" "kube-system") -}}
{{- $agents := dict "matchLabels" (dict "k8s-app" "konnectivity-agent") -}}
{{- $peers = append $peers (dict "namespaceSelector" $kubeSystem "podSelector" $agents) -}}
{{- end -}}
{{- end -}}
{{- toYaml $peers -}}
{{- end -}}

{{/* What seeds must not reach, as a list: what is named, or what is known of API server, Services and nodes. */}}
{{- define "oz.seedDeniedRanges" -}}
{{- $ranges := .Values.harness.seedDeniedRanges -}}
{{- if not $ranges -}}
{{- $addresses := list -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if eq (get (.metadata.labels | default dict) "kubernetes.io/service-name") "kubernetes" -}}
{{- range .endpoints -}}
{{- $addresses = concat $addresses .addresses -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $addresses = concat $addresses (dig "spec" "clusterIPs" list (lookup "v1" "Service" "default" "kubernetes" | default dict)) -}}
{{- $nodes := (lookup "v1" "Node" "" "").items | default list -}}
{{- /* Of many nodes, which come and go, somebody has to name the range. */ -}}
{{- if le (len $nodes) 64 -}}
{{- range $nodes -}}
{{- range .status.addresses -}}
{{- if eq .type "InternalIP" -}}
{{- $addresses = append $addresses .address -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $addresses -}}
{{- $ranges = append $ranges (printf "%s/%s" . (contains ":" . | ternary "128" "32")) -}}
{{- end -}}
{{- if .Capabilities.APIVersions.Has "networking.k8s.io/v1/ServiceCIDR" -}}
{{- range (lookup "networking.k8s.io/v1" "ServiceCIDR" "" "").items -}}
{{- $ranges = concat $ranges .spec.cidrs -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $ranges | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/* Whether there are NetworkPolicies. */}}
{{- define "oz.networkPolicy" -}}
{{- $create := toString .Values.networkPolicy.create -}}
{{- if eq $create "auto" -}}
{{- $cilium := and (.Capabilities.APIVersions.Has "cilium.io/v2") (not .Values.networkPolicy.apiServer) -}}
{{- if and (include "oz.apiServerPeers" . | fromYamlArray) (not $cilium) -}}
yes
{{- end -}}
{{- else if eq $create "true" -}}
yes
{{- end -}}
{{- end -}}
