{{/*
The one list of outgoing connections of oz's pods. A change that adds a connection to a program adds it here; a test
compares this list with the URLs in the configuration of each program (e2e/tests/chart/egress.rs).
*/}}

{{/* The URLs that a component (list . "operator") is told; of one that only a Secret names, that it is of https. */}}
{{- define "oz.outgoing" -}}
{{- $values := (index . 0).Values -}}
{{- $component := index . 1 -}}
{{- $urls := list -}}
{{- with ($values.outbound | default dict).proxy -}}
{{- $urls = append $urls . -}}
{{- end -}}
{{- with $values.audit.http.url -}}
{{- $urls = append $urls . -}}
{{- end -}}
{{- range ($values.notifications | default dict).routes -}}
{{- $urls = append $urls (.url | default "https://named.by-a-secret.invalid") -}}
{{- end -}}
{{- if eq $component "operator" -}}
{{- range ($values.tickets | default dict).checks -}}
{{- $urls = append $urls .url -}}
{{- end -}}
{{- end -}}
{{- $recordings := ($values.gate).recordings | default dict -}}
{{- if and (eq $component "gate") (hasPrefix "s3://" ($recordings.url | default "")) -}}
{{- $urls = append $urls ($recordings.endpoint | default "https://s3.amazonaws.com") -}}
{{- with $recordings.webIdentity | default dict -}}
{{- if .role -}}
{{- $urls = append $urls (.endpoint | default "https://sts.amazonaws.com") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml ($urls | uniq) -}}
{{- end -}}

{{/* The ports of the API server, behind its Service too: what Helm finds in the cluster besides the usual ones. */}}
{{- define "oz.apiServerPorts" -}}
{{- $ports := list 443 6443 -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if eq (get (.metadata.labels | default dict) "kubernetes.io/service-name") "kubernetes" -}}
{{- range .ports -}}
{{- $ports = append $ports (int .port) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml ($ports | uniq) -}}
{{- end -}}

{{/* The egress rules of a component: (list . "operator"). */}}
{{- define "oz.egress" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $tcp := list -}}
{{- $namespaces := list -}}
{{- range include "oz.outgoing" . | fromYamlArray -}}
{{- $url := urlParse . -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "http" | ternary "80" "443") -}}
{{- $tcp = append $tcp (int $port) -}}
{{- /* A Service may have another port than its pods, which is the one that counts. */ -}}
{{- $labels := splitList "." (regexReplaceAll ":[0-9]+$" $url.host "") -}}
{{- if eq (len $labels) 1 -}}
{{- $namespaces = append $namespaces $root.Release.Namespace -}}
{{- else if or (eq (len $labels) 2) (eq (index $labels 2 | default "") "svc") -}}
{{- $namespaces = append $namespaces (index $labels 1) -}}
{{- end -}}
{{- end -}}
# Name servers, and those of OpenShift behind their Service.
- ports:
    {{- range list 53 5353 }}
    - {port: {{ . }}, protocol: UDP}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
# The API server.
{{- $addresses := list }}
{{- range $root.Values.networkPolicy.apiServer }}
{{- if hasKey . "ipBlock" }}
{{- $addresses = append $addresses . }}
{{- end }}
{{- end }}
{{- if $addresses }}
- to:
    {{- toYaml $addresses | nindent 4 }}
{{- else }}
- ports:
    {{- range include "oz.apiServerPorts" $root | fromYamlArray }}
    - {port: {{ int . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- with $tcp | uniq }}
# Servers that the values name.
- ports:
    {{- range . }}
    - {port: {{ int . }}, protocol: TCP}
    {{- end }}
{{- end }}
{{- with $namespaces | uniq }}
- to:
    {{- range . }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ . | quote }}}}
    {{- end }}
{{- end }}
{{- if eq $component "gate" }}
# The gate's replicas, which ask each other for open sessions.
- to:
    - podSelector:
        matchLabels:
          {{- include "oz.selector" (list $root "gate") | nindent 10 }}
  ports:
    - {port: gate, protocol: TCP}
{{- end }}
{{- if and (eq $component "operator") ($root.Values.composites).enabled }}
# Functions of composites, which their objects name.
- to:
    - namespaceSelector: {}
- ports:
    - {port: 80, protocol: TCP}
    - {port: 443, protocol: TCP}
{{- end }}
{{- with $root.Values.networkPolicy.egress }}
# What the values add.
{{ toYaml . }}
{{- end }}
{{- end -}}
