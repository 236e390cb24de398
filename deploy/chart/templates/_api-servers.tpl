{{- /* The right of an account to read which API servers there are, so that its program finds those that take the place of the configured ones. */ -}}
{{- define "isthmus.apiServersRight" -}}
# The API servers of the cluster, for when the configured ones are not reached.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}-api-servers
  namespace: default
  labels: { app.kubernetes.io/part-of: isthmus }
rules:
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    resourceNames: [kubernetes]
    verbs: [list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}-api-servers
  namespace: default
  labels: { app.kubernetes.io/part-of: isthmus }
roleRef: { apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}-api-servers }
subjects:
  - { kind: ServiceAccount, name: {{ .account }}, namespace: {{ .namespace }} }
{{- end }}

{{- /* Where a program keeps them. */ -}}
{{- define "isthmus.apiServersMount" -}}
- { name: api-servers, mountPath: /run/isthmus }
{{- end }}
{{- define "isthmus.apiServersVolume" -}}
# The last known API servers of the cluster, for the next start of a container.
- name: api-servers
  emptyDir: { sizeLimit: 1Mi }
{{- end }}
