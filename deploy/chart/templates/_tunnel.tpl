{{- /* The pods of proxy-agent. Nothing here comes from the API server: no Secret, no ConfigMap, no account. */ -}}
{{- define "isthmus.proxyAgentPod" -}}
hostNetwork: true
dnsPolicy: Default
automountServiceAccountToken: false
# A little more than --drain-timeout.
terminationGracePeriodSeconds: 40
securityContext:
  seccompProfile:
    type: RuntimeDefault
{{ include "isthmus.tunnelPlacement" (dict "root" . "end" .Values.tunnel.agent "workload" .Values.workloads.proxyAgent) }}
{{- if ne .Values.tunnel.agent.kind "StaticPod" }}
# Whatever the taints, but not on machines of the control plane: they have the API server themselves, on the agent's port.
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
        - matchExpressions:
            - { key: node-role.kubernetes.io/control-plane, operator: DoesNotExist }
{{- end }}
containers:
  - name: proxy-agent
    image: {{ include "isthmus.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [isthmus]
    args:
      - proxy-agent
      # The proxy servers, by a name or address that the node's own network knows.
      - --proxy-server-host={{ .Values.tunnel.agent.serverHost }}
      - --proxy-server-port={{ .Values.tunnel.agent.serverPort }}
      - --ca-cert={{ .Values.tunnel.agent.certificates }}/servers-ca.crt
      - --agent-cert={{ .Values.tunnel.agent.certificates }}/agent.crt
      - --agent-key={{ .Values.tunnel.agent.certificates }}/agent.key
      - --agent-id=$(NODE_NAME)
      - --agent-identifiers=host=$(NODE_NAME)&host=$(HOST_IP)
      - --keepalive-time=30s
      {{- if .Values.tunnel.reverse.enabled }}
      # Node to control plane. Without these lines: control plane to nodes alone, and no capability is needed.
      - --feature-gates=EnableClusterToMasterTraffic=true
      - --target={{ .Values.tunnel.reverse.port }}:{{ .Values.tunnel.reverse.target }}
      # The API server's address, for every node the same; in dual stack add one of IPv6 behind a comma.
      - --bind-address={{ join "," .Values.tunnel.reverse.bindAddresses }}
      # The bind addresses, and the networks of the pods; other addresses of the node are let in by themselves.
      {{- range .Values.tunnel.reverse.bindAddresses }}
      - --allowed-source={{ . }}/{{ if contains ":" . }}128{{ else }}32{{ end }}
      {{- end }}
      {{- range .Values.tunnel.reverse.podCIDRs }}
      - --allowed-source={{ . }}
      {{- end }}
      {{- end }}
      - --health-server-host=127.0.0.1
      - --health-server-port=8093
      - --drain-timeout=30s
      {{- with include "isthmus.klogArgs" (dict "root" . "workload" .Values.workloads.proxyAgent "verbosity" 4) }}
      {{- trim . | nindent 6 }}
      {{- end }}
    env:
      - name: NODE_NAME
        valueFrom:
          fieldRef:
            fieldPath: spec.nodeName
      - name: HOST_IP
        valueFrom:
          fieldRef:
            fieldPath: status.hostIP
    {{- include "isthmus.tunnelProbes" (dict "port" 8093 "takesOver" "") | nindent 4 }}
    resources:
      {{- toYaml .Values.workloads.proxyAgent.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
        {{- if .Values.tunnel.reverse.enabled }}
        # For the bind interface and its addresses.
        add: [NET_ADMIN]
        {{- end }}
    volumeMounts:
      - name: certificates
        mountPath: {{ .Values.tunnel.agent.certificates }}
        readOnly: true
volumes:
  - name: certificates
    hostPath:
      path: {{ .Values.tunnel.agent.certificates }}
      type: Directory
{{- end }}

{{- /*
Not empty if a new proxy-server starts beside the old one and takes over. A static pod cannot: kubelet starts it when the old one has ended. Nor can servers
with the flags that --take-over does not work with.
*/ -}}
{{- define "isthmus.proxyServerTakesOver" -}}
{{- $extra := join " " .Values.workloads.proxyServer.extraArgs -}}
{{- if not (or (eq .Values.tunnel.server.kind "StaticPod") (contains "--workers" $extra) (contains "--server-id" $extra) (contains "--heap-snapshot-socket" $extra)) -}}
true
{{- end }}
{{- end }}

{{- /* The pods of proxy-server. */ -}}
{{- define "isthmus.proxyServerPod" -}}
hostNetwork: true
# The node's own resolver: cluster DNS is behind the tunnel.
dnsPolicy: Default
automountServiceAccountToken: false
# A little more than --graceful-shutdown-timeout.
terminationGracePeriodSeconds: 40
securityContext:
  seccompProfile:
    type: RuntimeDefault
{{ include "isthmus.tunnelPlacement" (dict "root" . "end" .Values.tunnel.server "workload" .Values.workloads.proxyServer) }}
containers:
  - name: proxy-server
    image: {{ include "isthmus.image" . }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    command: [isthmus]
    args:
      - proxy-server
      # Agents: certificate for them, and the authority of theirs.
      - --cluster-cert={{ .Values.tunnel.server.certificates }}/server.crt
      - --cluster-key={{ .Values.tunnel.server.certificates }}/server.key
      - --cluster-ca-cert={{ .Values.tunnel.server.certificates }}/agents-ca.crt
      - --agent-port={{ .Values.tunnel.server.agentPort }}
      - --keepalive-time=30s
      # kube-apiserver: the socket of egress-selector.yaml.
      - --mode={{ .Values.tunnel.server.mode }}
      - --uds-name={{ .Values.tunnel.server.socketFolder }}/frontend.sock
      - --server-port=0
      # How many machines run this.
      - --server-count={{ .Values.tunnel.server.count }}
      - --proxy-strategies=destHost,default
      {{- if .Values.tunnel.reverse.enabled }}
      # Node to control plane. Without these two lines: control plane to nodes alone.
      - --feature-gates=EnableClusterToMasterTraffic=true
      - --allowed-destination={{ .Values.tunnel.reverse.target }}
      {{- end }}
      - --health-bind-address=127.0.0.1
      - --health-port=8092
      - --graceful-shutdown-timeout=30s
      {{- if include "isthmus.proxyServerTakesOver" . }}
      # At a rollout the new pod starts beside the old one: both have the ports, and the old one hands the socket over.
      - --take-over
      {{- end }}
      {{- with include "isthmus.klogArgs" (dict "root" . "workload" .Values.workloads.proxyServer "verbosity" 4) }}
      {{- trim . | nindent 6 }}
      {{- end }}
    {{- if not (include "isthmus.proxyServerTakesOver" .) }}
    ports:
      - name: agents
        containerPort: {{ .Values.tunnel.server.agentPort }}
        hostPort: {{ .Values.tunnel.server.agentPort }}
    {{- end }}
    {{- include "isthmus.tunnelProbes" (dict "port" 8092 "takesOver" (include "isthmus.proxyServerTakesOver" .)) | nindent 4 }}
    resources:
      {{- toYaml .Values.workloads.proxyServer.resources | nindent 6 }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
      # SELinux lets no other unprivileged container write folders of the host.
      seLinuxOptions:
        type: spc_t
    volumeMounts:
      - name: certificates
        mountPath: {{ .Values.tunnel.server.certificates }}
        readOnly: true
      - name: frontend
        mountPath: {{ .Values.tunnel.server.socketFolder }}
volumes:
  - name: certificates
    hostPath:
      path: {{ .Values.tunnel.server.certificates }}
      type: Directory
  # kube-apiserver mounts it too.
  - name: frontend
    hostPath:
      path: {{ .Values.tunnel.server.socketFolder }}
      type: DirectoryOrCreate
{{- end }}

{{- /* A static pod is where its file is. */ -}}
{{- define "isthmus.tunnelPlacement" -}}
{{- if eq .end.kind "StaticPod" -}}
priorityClassName: {{ .workload.priorityClassName }}
{{- else -}}
{{ include "isthmus.placement" . }}
{{- end }}
{{- end }}

{{- define "isthmus.tunnelProbes" -}}
startupProbe:
  httpGet:
    host: 127.0.0.1
    path: /healthz
    port: {{ .port }}
  {{- if .takesOver }}
  # Until the new server waits for its turn the old one answers on this port.
  initialDelaySeconds: 3
  {{- end }}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet:
    host: 127.0.0.1
    path: /healthz
    port: {{ .port }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet:
    host: 127.0.0.1
    path: /readyz
    port: {{ .port }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{- /* The object around such a pod, by its kind; `pod` is the pod's spec. */ -}}
{{- define "isthmus.tunnelEnd" -}}
{{- if eq .kind "StaticPod" -}}
# A static pod, not a DaemonSet: kubelet has it before it reaches the API server. So nothing here comes from there: no Secret, no ConfigMap, no account. The
# image must be on the machine, or in a registry that it reaches without the tunnel.
apiVersion: v1
kind: Pod
metadata:
  name: {{ .name }}
  namespace: kube-system
  labels:
    app.kubernetes.io/name: {{ .name }}
    app.kubernetes.io/part-of: isthmus
spec:
  {{- .pod | nindent 2 }}
{{- else -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name }}
  namespace: kube-system
  labels: { app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: isthmus }
spec:
  selector:
    matchLabels: { app.kubernetes.io/name: {{ .name }} }
  {{- if .takesOver }}
  # A port that the pod lists would keep the new pod from the node: the agents' port is not listed.
  minReadySeconds: 5
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxSurge: 1, maxUnavailable: 0 }
  {{- else }}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 1 }
  {{- end }}
  template:
    metadata:
      labels: { app.kubernetes.io/name: {{ .name }}, app.kubernetes.io/part-of: isthmus }
    spec:
      {{- .pod | nindent 6 }}
{{- end }}
{{- end }}
