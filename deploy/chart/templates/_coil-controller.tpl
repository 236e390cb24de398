{{- /* The Deployment of one of Coil's controllers; `args` are its own, as a list in YAML. */ -}}
{{- define "isthmus.coilController" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: kube-system
  labels: { app.kubernetes.io/name: coil, app.kubernetes.io/component: {{ .name }}, app.kubernetes.io/part-of: isthmus }
spec:
  replicas: {{ .workload.replicas }}
  # Ports of the node: with as many nodes as replicas a further pod finds no place, so one ends before the next one begins.
  strategy:
    type: RollingUpdate
    rollingUpdate: { maxSurge: 0, maxUnavailable: 1 }
  selector:
    matchLabels: { app.kubernetes.io/name: coil, app.kubernetes.io/component: {{ .name }} }
  template:
    metadata:
      labels: { app.kubernetes.io/name: coil, app.kubernetes.io/component: {{ .name }}, app.kubernetes.io/part-of: isthmus }
    spec:
      serviceAccountName: {{ .name }}
      # Pods have no addresses before it runs.
      hostNetwork: true
      terminationGracePeriodSeconds: 10
      securityContext: { runAsUser: 10000, runAsGroup: 10000, seccompProfile: { type: RuntimeDefault } }
      {{- include "isthmus.placement" . | nindent 6 }}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            - weight: 100
              podAffinityTerm:
                topologyKey: kubernetes.io/hostname
                labelSelector:
                  matchLabels: { app.kubernetes.io/name: coil, app.kubernetes.io/component: {{ .name }} }
      containers:
        - name: {{ .name }}
          image: {{ include "isthmus.image" .root }}
          {{- with include "isthmus.pullPolicy" .root }}
          {{- trim . | nindent 10 }}
          {{- end }}
          command: [{{ .name }}]
          args:
            - --zap-stacktrace-level=panic
            - --enable-cert-rotation=true
            - --record-dir=/var/lib/isthmus/record
            {{- with include "isthmus.callerArgs" .root }}
            {{- trim . | nindent 12 }}
            {{- end }}
            {{- with .args }}
            {{- trim . | nindent 12 }}
            {{- end }}
            {{- with include "isthmus.zapArgs" . }}
            {{- trim . | nindent 12 }}
            {{- end }}
          env:
            - name: COIL_POD_NAMESPACE
              valueFrom:
                fieldRef: { fieldPath: metadata.namespace }
            - name: COIL_POD_NAME
              valueFrom:
                fieldRef: { fieldPath: metadata.name }
            {{- with include "isthmus.apiServer" .root }}
            {{- trim . | nindent 12 }}
            {{- end }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          ports:
            - { name: metrics, containerPort: {{ .metrics }}, protocol: TCP }
            - { name: health, containerPort: {{ .health }}, protocol: TCP }
            - { name: webhook-server, containerPort: {{ .webhook }}, protocol: TCP }
          resources:
            {{- toYaml .workload.resources | nindent 12 }}
          livenessProbe:
            httpGet: { path: /healthz, port: health, host: localhost }
          readinessProbe:
            httpGet: { path: /readyz, port: health, host: localhost }
            periodSeconds: 5
          volumeMounts:
            - { name: cert, mountPath: /certs, readOnly: true }
            - { name: state, mountPath: /var/lib/isthmus }
            {{- include "isthmus.apiServersMount" . | nindent 12 }}
            {{- with include "isthmus.callerMount" .root }}
            {{- trim . | nindent 12 }}
            {{- end }}
      volumes:
        - name: cert
          secret: { secretName: coilv2-{{ .part }}-webhook-server-cert }
        # What was under way when a container ended, which its next start reads.
        - name: state
          emptyDir: { sizeLimit: 16Mi }
        {{- include "isthmus.apiServersVolume" . | nindent 8 }}
        {{- with include "isthmus.callerVolume" .root }}
        {{- trim . | nindent 8 }}
        {{- end }}
{{- end }}
