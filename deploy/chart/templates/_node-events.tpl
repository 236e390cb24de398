{{- /* The policy of the events of a node's program: `account` is its account, `controller` what it calls itself in them. */ -}}
{{- define "isthmus.nodeEvents" -}}
# Whoever reads an event of this account can rely on its node, and it changes those of its own node alone.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ .name }}
  labels: { app.kubernetes.io/part-of: isthmus }
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: ["", events.k8s.io]
        apiVersions: ["*"]
        operations: ["*"]
        resources: [events]
  matchConditions:
    - name: account
      expression: request.userInfo.username == 'system:serviceaccount:{{ .account.namespace }}:{{ .account.name }}'
  variables:
    - name: node
      expression: >-
        has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra
        ? request.userInfo.extra['authentication.kubernetes.io/node-name'][0] : ''
  validations:
    - expression: variables.node != ''
      message: the token of {{ .controller }} has no name of a node, as one that was made by hand, or by Kubernetes before 1.30; it may write no events
      reason: Forbidden
    - expression: request.resource.group == 'events.k8s.io' && (request.operation == 'CREATE' || request.operation == 'UPDATE')
      message: {{ .controller }} writes events of events.k8s.io, and deletes none
      reason: Forbidden
    - expression: >-
        [object, oldObject].all(one, one == null || (has(one.reportingController) && one.reportingController == '{{ .controller }}'
        && has(one.reportingInstance) && one.reportingInstance == variables.node))
      message: the event is of another program or node than that of the token
      reason: Forbidden
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels: { app.kubernetes.io/part-of: isthmus }
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}
