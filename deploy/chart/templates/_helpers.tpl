{{- /* The image of every program. */ -}}
{{- define "isthmus.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- /* The rest of a container's image, at its indentation. */ -}}
{{- define "isthmus.pullPolicy" -}}
{{- if ne .Values.image.pullPolicy "IfNotPresent" }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}
{{- end }}

{{- /* Where the pods of a workload go, and how important they are; the dot is a dict of the root and the workload's values. */ -}}
{{- define "isthmus.placement" -}}
priorityClassName: {{ .workload.priorityClassName | quote }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .workload.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The end of a list of arguments: who may read metrics, the level of the log, and what a workload has besides. */ -}}
{{- define "isthmus.zapArgs" -}}
{{- with .root.Values.metrics.from }}
- --metrics-from={{ join "," . }}
{{- end }}
{{- if .root.Values.metrics.authorization }}
- --metrics-authorization
{{- end }}
{{- include "isthmus.zapLogArgs" . }}
{{- end }}

{{- /* The same for a program whose metrics are behind no port of their own. */ -}}
{{- define "isthmus.zapLogArgs" -}}
{{- if ne .root.Values.logLevel "info" }}
- --zap-log-level={{ .root.Values.logLevel }}
{{- end }}
{{- range .workload.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The same for programs with flags of klog. `verbosity` is that of debug. */ -}}
{{- define "isthmus.klogArgs" -}}
{{- with .root.Values.metrics.from }}
- --metrics-from={{ join "," . }}
{{- end }}
{{- if eq .root.Values.logLevel "debug" }}
- --v={{ .verbosity }}
{{- end }}
{{- range .workload.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* The API server for programs that run before Services work, as variables of a container. */ -}}
{{- define "isthmus.apiServer" -}}
{{- if .Values.apiServer.host }}
- { name: KUBERNETES_SERVICE_HOST, value: {{ .Values.apiServer.host | quote }} }
- { name: KUBERNETES_SERVICE_PORT, value: {{ .Values.apiServer.port | quote }} }
{{- end }}
{{- end }}

{{- /* The pod network's configuration for runtimes. */ -}}
{{- define "isthmus.podsNetconf" -}}
{{- if .Values.pods.netconf -}}
{{ .Values.pods.netconf | trim }}
{{- else if .Values.pods.addresses -}}
{
  "cniVersion": "1.0.0",
  "name": "k8s-pod-network",
  "plugins": [
    { "type": "coil", "socket": "/run/coild.sock" },
    { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true }
  ]
}
{{- else -}}
{
  "cniVersion": "1.0.0",
  "name": "k8s-pod-network",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {
        "type": "host-local",
        "dataDir": "/run/cni-ipam-state",
        "ranges": [[{ "subnet": "10.244.0.0/24" }], [{ "subnet": "fd00:10:244::/64" }]],
        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]
      }
    },
    { "type": "portmap", "capabilities": { "portMappings": true }, "snat": true },
    { "type": "coil", "socket": "/run/coild.sock" }
  ]
}
{{- end }}
{{- end }}

{{- /* The network configuration of nodes with VPC NICs. Pods without a VPC go to the plugins under `delegate`, which get what the runtime gives the first one. */ -}}
{{- define "isthmus.nicsNetconf" -}}
{{- if and .Values.nics.netconf .Values.pods.netconf }}
{{- fail "nics.netconf is the whole network of these nodes, and pods.netconf would have no effect: put it under delegate in nics.netconf, or leave nics.netconf empty" }}
{{- end }}
{{- if .Values.nics.netconf -}}
{{ .Values.nics.netconf | trim }}
{{- else -}}
{
  "cniVersion": "0.4.0",
  "name": "k8s-pod-network",
  "plugins": [
    {
      "type": "vpc-{{ .Values.nics.provider }}",
      "socket": "/run/isthmus/vpc.sock",
      "capabilities": { "io.kubernetes.cri.pod-annotations": true, "portMappings": true, "bandwidth": true, "mac": true },
      "delegate": {{ include "isthmus.podsNetconf" . | nindent 6 | trim }}
    }
  ]
}
{{- end }}
{{- end }}

{{- /* The digest of what an installer puts in place, as an annotation of its pods: an init container has a changed configuration only when its pod starts. */ -}}
{{- define "isthmus.netconfDigest" -}}
{{- if .Values.nics.enabled -}}
checksum/cni-netconf: {{ include "isthmus.nicsNetconf" . | sha256sum }}
{{- else -}}
checksum/cni-netconf: {{ include "isthmus.podsNetconf" . | sha256sum }}
{{- end }}
{{- end }}

{{- /* What an installer puts in place for VPC NICs. With the pod network in the same release both installers have it: each puts other configurations aside. */ -}}
{{- define "isthmus.nicsInstall" -}}
- { name: CNI_PLUGINS, value: "/usr/local/coil/vpc-neutron,/usr/local/coil/vpc-alcor" }
- { name: CNI_CONF_NAME, value: 05-vpc.conflist }
- name: CNI_NETCONF
  valueFrom:
    configMapKeyRef: { name: nic-agent-network, key: cni_netconf }
{{- end }}

{{- /* What the installer beside coild puts in place, and what coild keeps. */ -}}
{{- define "isthmus.podsInstall" -}}
{{- if .Values.nics.enabled }}
{{- include "isthmus.nicsInstall" . }}
{{- else -}}
- name: CNI_NETCONF
  valueFrom:
    configMapKeyRef: { name: coil-config, key: cni_netconf }
{{- end }}
{{- end }}

{{- /* The folders of CNI files in a program that keeps them; `isthmus doctor` in its pod reads them at the same places. */ -}}
{{- define "isthmus.keptFolders" -}}
- { name: CNI_ETC_DIR, value: /etc/cni/net.d }
- { name: CNI_BIN_DIR, value: /opt/cni/bin }
{{- end }}

{{- /* What routers and clients must have alike, and what the controller alone has. */ -}}
{{- define "isthmus.egressArgs" -}}
- --tunnel-driver={{ .Values.egress.tunnelDriver }}
- --backend={{ .Values.egress.backend }}
{{- range .Values.egress.addressRanges }}
- --egress-address-range={{ . }}
{{- end }}
{{- end }}

{{- /* The flags, the mount and the volume of webhooks that take reviews from API servers with a client certificate alone. */ -}}
{{- define "isthmus.callerArgs" -}}
{{- if .Values.webhooks.clientCA }}
- --webhook-client-ca=/callers/ca.crt
{{- range .Values.webhooks.clientNames }}
- --webhook-client-name={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- define "isthmus.callerMount" -}}
{{- if .Values.webhooks.clientCA }}
- { name: callers, mountPath: /callers, readOnly: true }
{{- end }}
{{- end }}
{{- define "isthmus.callerVolume" -}}
{{- if .Values.webhooks.clientCA }}
- name: callers
  configMap: { name: isthmus-webhook-callers }
{{- end }}
{{- end }}

{{- /* The pods that the webhooks of NICs concern, of namespaces in which others pass without them. */ -}}
{{- define "isthmus.ofNics" -}}
matchConditions:
  - name: annotation-or-gate
    expression: >-
      [object, oldObject].exists(one, one != null && (
      (has(one.metadata.annotations) && ['isthmus.dev/vpc', 'isthmus.dev/nics', 'isthmus.dev/vm', 'isthmus.dev/nic-status', 'isthmus.dev/claim', 'VPC', 'NICs'].exists(key, key in one.metadata.annotations))
      || (has(one.spec.schedulingGates) && one.spec.schedulingGates.exists(gate, gate.name == 'isthmus.dev/nics'))))
{{- end }}
