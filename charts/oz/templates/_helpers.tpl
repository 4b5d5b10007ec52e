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
{{- include "oz.imageName" (list .Values.image .Chart.AppVersion) -}}
{{- end -}}

{{/* The image of our container in the pods of harness runs. */}}
{{- define "oz.harnessImage" -}}
{{- include "oz.imageName" (list .Values.harness.image .Chart.AppVersion) -}}
{{- end -}}

{{/* By what repositories are cloned; empty if nothing was said. */}}
{{- define "oz.gitImage" -}}
{{- $image := .Values.harness.gitImage -}}
{{- if and $image.repository (required "harness.gitImage needs a digest or a tag" (coalesce $image.digest $image.tag)) -}}
{{- include "oz.imageName" (list $image "") -}}
{{- end -}}
{{- end -}}

{{/* The name of an image. Takes [its repository, tag and digest; the tag where it has neither]. */}}
{{- define "oz.imageName" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ default (index . 1) $image.tag }}
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
{{- /* The C library's allocator keeps what is freed in one pool, not in one for each thread. */}}
- name: MALLOC_ARENA_MAX
  value: "1"
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

{{/* The flags by which transient bindings are allowed: operator and webhook have the same. */}}
{{- define "oz.transient" -}}
{{- with .Values.transient.bindableRoles -}}
- {{ printf "--bindable-roles=%s" (join "," .) | quote }}
- --max-binding-window={{ $.Values.transient.maxBindingWindow }}
- --max-binding-lead={{ $.Values.transient.maxBindingLead }}
- --max-waiting-bindings={{ int64 $.Values.transient.maxWaitingBindings }}
{{- range $namespace, $window := $.Values.transient.maxBindingWindowIn }}
- {{ printf "--max-binding-window-in=%s=%s" $namespace $window | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The flags about the audit trail that operator and webhook have both. */}}
{{- define "oz.audit" -}}
- --audit-objects={{ .Values.audit.objects }}
- --audit-checkpoint={{ .Values.audit.checkpoint }}
- --audit-key-life={{ .Values.audit.keyLife }}
{{- with .Values.audit.http }}
{{- if .url }}
- {{ printf "--audit-http=%s" .url | quote }}
- --audit-http-spool={{ int .spool }}
{{- if .required }}
- --audit-http-required
{{- end }}
{{- $secret := .secret | default dict }}
{{- if and $secret.name $secret.token }}
- --audit-http-token-file=/etc/oz/collector/{{ $secret.token }}
{{- end }}
{{- if and $secret.name $secret.ca }}
- --audit-http-ca=/etc/oz/collector/{{ $secret.ca }}
{{- end }}
{{- end }}
{{- end }}
{{- with include "oz.notifications" . }}
- {{ printf "--notifications=%s" . | quote }}
{{- end }}
{{- end -}}

{{/* The value of --notifications; empty where nobody is told of anything. What is secret is in files. */}}
{{- define "oz.notifications" -}}
{{- $routes := list }}
{{- range (.Values.notifications).routes }}
{{- $route := omit . "secret" }}
{{- $folder := printf "/etc/oz/notifications/%s" .name }}
{{- $secret := .secret | default dict }}
{{- range $field, $file := dict "url" "urlFile" "token" "tokenFile" "signingKey" "signingKeyFile" "ca" "caFile" }}
{{- with get $secret $field }}
{{- $_ := set $route $file (printf "%s/%s" $folder .) }}
{{- end }}
{{- end }}
{{- $routes = append $routes $route }}
{{- end }}
{{- if $routes }}
{{- dict "routes" $routes "allowedHosts" (.Values.notifications.allowedHosts | default list) | toJson }}
{{- end }}
{{- end -}}

{{/* The value of --tickets; empty where no server is asked about any. What is secret is in files. */}}
{{- define "oz.tickets" -}}
{{- $checks := dict }}
{{- range $name, $check := (.Values.tickets).checks }}
{{- $written := omit $check "secret" }}
{{- $secret := $check.secret | default dict }}
{{- range $field, $file := dict "token" "tokenFile" "ca" "caFile" }}
{{- with get $secret $field }}
{{- $_ := set $written $file (printf "/etc/oz/tickets/%s/%s" $name .) }}
{{- end }}
{{- end }}
{{- $_ := set $checks $name $written }}
{{- end }}
{{- if $checks }}
{{- dict "checks" $checks "allowedHosts" (.Values.tickets.allowedHosts | default list) | toJson }}
{{- end }}
{{- end -}}

{{/* Where the files that --tickets names are, in the operator's container and in its pod, beside those about the
audit trail. */}}
{{- define "oz.operatorMounts" -}}
{{- $mounts := list }}
{{- with include "oz.auditMounts" . }}
{{- $mounts = (fromYaml .).volumeMounts }}
{{- end }}
{{- range $number, $name := keys ((.Values.tickets).checks | default dict) | sortAlpha }}
{{- if ((get $.Values.tickets.checks $name).secret | default dict).name }}
{{- $path := printf "/etc/oz/tickets/%s" $name }}
{{- $mounts = append $mounts (dict "name" (printf "tickets-%d" $number) "mountPath" $path "readOnly" true) }}
{{- end }}
{{- end }}
{{- with $mounts -}}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "oz.operatorVolumes" -}}
{{- $volumes := list }}
{{- with include "oz.auditVolumes" . }}
{{- $volumes = (fromYaml .).volumes }}
{{- end }}
{{- range $number, $name := keys ((.Values.tickets).checks | default dict) | sortAlpha }}
{{- with ((get $.Values.tickets.checks $name).secret | default dict).name }}
{{- $volumes = append $volumes (dict "name" (printf "tickets-%d" $number) "secret" (dict "secretName" .)) }}
{{- end }}
{{- end }}
{{- with $volumes -}}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The gate's flags about recordings; none where none are made. */}}
{{- define "oz.recordings" -}}
{{- $recordings := (.Values.gate).recordings | default dict -}}
{{- with $recordings.url -}}
- {{ printf "--recordings=%s" . | quote }}
- --recording-spool=/var/lib/oz/spool/recordings
- --recording-spool-bytes={{ mul 1048576 (int64 (dig "spool" "mebibytes" 1024 $recordings)) }}
{{- with $recordings.recipients }}
- --recording-recipients={{ join "," . }}
{{- end }}
{{- if hasPrefix "s3://" . }}
{{- $identity := $recordings.webIdentity | default dict }}
{{- if $identity.role }}
- {{ printf "--recordings-role=%s" $identity.role | quote }}
- --recordings-web-identity-token=/etc/oz/recordings-identity/token
{{- with $identity.endpoint }}
- {{ printf "--recordings-sts-endpoint=%s" . | quote }}
{{- end }}
{{- else }}
- --recordings-credentials=/etc/oz/recordings
{{- end }}
- {{ printf "--recordings-region=%s" ($recordings.region | default "us-east-1") | quote }}
{{- with $recordings.endpoint }}
- {{ printf "--recordings-endpoint=%s" . | quote }}
{{- end }}
{{- if $recordings.pathStyle }}
- --recordings-path-style
{{- end }}
{{- with ($recordings.secret | default dict).ca }}
- --recordings-ca=/etc/oz/recordings/{{ . }}
{{- end }}
{{- with int $recordings.retentionDays }}
- --recordings-retention={{ . }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The volumes that those flags name directories of, each with where it is in the gate's container, as a list. */}}
{{- define "oz.recordingVolumes" -}}
{{- $recordings := (.Values.gate).recordings | default dict -}}
{{- $volumes := list -}}
{{- with $recordings.url -}}
{{- $size := div (mul 5 (int64 (dig "spool" "mebibytes" 1024 $recordings))) 4 -}}
{{- $spool := dict "emptyDir" (dict "sizeLimit" (printf "%dMi" $size)) -}}
{{- $volumes = append $volumes (dict "name" "spool" "at" "/var/lib/oz/spool" "source" $spool) -}}
{{- if hasPrefix "s3://" . -}}
{{- $identity := $recordings.webIdentity | default dict -}}
{{- $secret := ($recordings.secret | default dict).name -}}
{{- if $identity.role -}}
{{- $token := dict "path" "token" "audience" ($identity.audience | default "sts.amazonaws.com") "expirationSeconds" 3600 -}}
{{- $source := dict "projected" (dict "sources" (list (dict "serviceAccountToken" $token))) -}}
{{- $volumes = append $volumes (dict "name" "recordings-identity" "at" "/etc/oz/recordings-identity" "readOnly" true "source" $source) -}}
{{- else if not $secret -}}
{{- fail "gate.recordings.secret.name: name the Secret with access-key-id and secret-access-key for the bucket, or set gate.recordings.webIdentity.role" -}}
{{- end -}}
{{- if $secret -}}
{{- $source := dict "secret" (dict "secretName" $secret) -}}
{{- $volumes = append $volumes (dict "name" "recordings" "at" "/etc/oz/recordings" "readOnly" true "source" $source) -}}
{{- end -}}
{{- else -}}
{{- if not $recordings.volume -}}
{{- fail "gate.recordings.volume: name the volume on which recordings are stored" -}}
{{- end -}}
{{- $volumes = append $volumes (dict "name" "recordings" "at" "/var/lib/oz/recordings" "source" $recordings.volume) -}}
{{- end -}}
{{- end -}}
{{- toYaml $volumes -}}
{{- end -}}

{{/* Where the gate's files are, in its container and in its pod, beside those about the audit trail. */}}
{{- define "oz.gateMounts" -}}
{{- $mounts := list }}
{{- with include "oz.auditMounts" . }}
{{- $mounts = (fromYaml .).volumeMounts }}
{{- end }}
{{- range include "oz.recordingVolumes" . | fromYamlArray }}
{{- $mount := dict "name" .name "mountPath" .at }}
{{- if .readOnly }}
{{- $_ := set $mount "readOnly" true }}
{{- end }}
{{- $mounts = append $mounts $mount }}
{{- end }}
{{- with $mounts -}}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "oz.gateVolumes" -}}
{{- $volumes := list }}
{{- with include "oz.auditVolumes" . }}
{{- $volumes = (fromYaml .).volumes }}
{{- end }}
{{- range include "oz.recordingVolumes" . | fromYamlArray }}
{{- $volumes = append $volumes (merge (dict "name" .name) .source) }}
{{- end }}
{{- with $volumes -}}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The Secret that those flags name files of, if any. */}}
{{- define "oz.collectorSecret" -}}
{{- with .Values.audit.http -}}
{{- if .url -}}
{{- (.secret | default dict).name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where the files that those flags name are, in a container and in its pod. */}}
{{- define "oz.auditMounts" -}}
{{- $mounts := list }}
{{- if include "oz.collectorSecret" . }}
{{- $mounts = append $mounts (dict "name" "collector" "mountPath" "/etc/oz/collector" "readOnly" true) }}
{{- end }}
{{- range $number, $route := (.Values.notifications).routes }}
{{- if ($route.secret | default dict).name }}
{{- $path := printf "/etc/oz/notifications/%s" $route.name }}
{{- $mounts = append $mounts (dict "name" (printf "route-%d" $number) "mountPath" $path "readOnly" true) }}
{{- end }}
{{- end }}
{{- with $mounts -}}
volumeMounts:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- define "oz.auditVolumes" -}}
{{- $volumes := list }}
{{- with include "oz.collectorSecret" . }}
{{- $volumes = append $volumes (dict "name" "collector" "secret" (dict "secretName" .)) }}
{{- end }}
{{- range $number, $route := (.Values.notifications).routes }}
{{- with ($route.secret | default dict).name }}
{{- $volumes = append $volumes (dict "name" (printf "route-%d" $number) "secret" (dict "secretName" .)) }}
{{- end }}
{{- end }}
{{- with $volumes -}}
volumes:
  {{- toYaml . | nindent 2 }}
{{- end -}}
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

{{/* What seeds must not reach: what is named, or what is known of API server, Services and nodes. */}}
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
{{- $ranges | uniq | sortAlpha | join "," -}}
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
