import { type FieldFault, invalid } from "#kube/crd";
import { CLIENTS_OF_ANNOTATION } from "./keys.ts";
import { expressionFault, type LabelSelector, MAX_MATCH_LABELS } from "./label-selector.ts";
import type { EgressSpec } from "./types.ts";

/** A DNS label of RFC 1123: the name of a Namespace. */
const NAMESPACE = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const LABEL_VALUE = /^(([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9])?$/;
const LABEL_KEY =
  /^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]$/;

/** Pure: the faults of `spec.allowedNamespaces` and `spec.clients` (docs/spec/pod-network.md#2.5). */
export function accessFaults({ allowedNamespaces, clients }: EgressSpec): FieldFault[] {
  const faults: FieldFault[] = [];
  for (const [at, name] of (allowedNamespaces?.names ?? []).entries()) {
    if (!NAMESPACE.test(name))
      faults.push(invalid(`spec.allowedNamespaces.names[${at}]`, name, "must be the name of a namespace"));
  }
  checkSelector(allowedNamespaces?.selector, "spec.allowedNamespaces.selector", faults);
  for (const [at, { namespaceSelector, podSelector }] of (clients ?? []).entries()) {
    checkSelector(namespaceSelector, `spec.clients[${at}].namespaceSelector`, faults);
    checkSelector(podSelector, `spec.clients[${at}].podSelector`, faults);
  }
  return faults;
}

/** Pure: the warnings about `spec.clients`. */
export function accessWarnings({ clients }: EgressSpec): string[] {
  if (!(clients ?? []).some(({ namespaceSelector }) => namespaceSelector !== undefined)) return [];
  return [
    `spec.clients: pods of other namespaces are selected only if the annotation ${CLIENTS_OF_ANNOTATION} of their Namespace names this Egress; status.refusedClients counts the others`,
  ];
}

function checkSelector(selector: LabelSelector | undefined, at: string, faults: FieldFault[]): void {
  const { matchLabels = {}, matchExpressions = [] } = selector ?? {};
  const keyFault = (key: string): boolean => key.length > 317 || !LABEL_KEY.test(key);
  // More were found by the schema.
  for (const [key, value] of Object.entries(matchLabels).slice(0, MAX_MATCH_LABELS)) {
    if (keyFault(key)) faults.push(invalid(`${at}.matchLabels`, key, "is not a label key"));
    if (!LABEL_VALUE.test(value)) faults.push(invalid(`${at}.matchLabels`, value, "is not a label value"));
  }
  for (const [index, expression] of matchExpressions.entries()) {
    const { key, values = [] } = expression;
    const path = `${at}.matchExpressions[${index}]`;
    if (keyFault(key)) faults.push(invalid(`${path}.key`, key, "is not a label key"));
    const fault = expressionFault(expression);
    if (fault !== undefined) faults.push(invalid(`${path}.values`, `${values.length} values`, fault));
    for (const value of values)
      if (!LABEL_VALUE.test(value)) faults.push(invalid(`${path}.values`, value, "is not a label value"));
  }
}
