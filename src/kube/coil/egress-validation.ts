import { Cidr } from "#base/ip";
import { duplicate, type FieldFault, invalid, notSupported, required } from "#kube/crd";
import { accessFaults, accessWarnings } from "./access-validation.ts";
import { type AddressContext, type AddressedEgress, addressFaults, addressWarnings } from "./egress-addresses.ts";
import { podSpecFaults } from "./pod-template.ts";
import type { EgressPodTemplate, EgressSpec } from "./types.ts";

/** The result of validating an Egress: `faults` refuse it, `warnings` do not. */
export interface EgressVerdict {
  readonly faults: FieldFault[];
  readonly warnings: string[];
}

/**
 * Checks an Egress (docs/spec/pod-network.md#2.5), or a change of `old`: only the rules of addresses depend on that. `dualStack`: the cluster's pods
 * have both families.
 */
export function validateEgress(
  egress: {
    readonly metadata?: { readonly name?: string | undefined; readonly namespace?: string | undefined };
    readonly spec: EgressSpec;
  },
  context: AddressContext & { readonly dualStack?: boolean } = {},
  old?: AddressedEgress,
): EgressVerdict {
  const { spec } = egress;
  const faults: FieldFault[] = [];
  checkName(egress.metadata?.name, faults);
  const destinations = checkDestinations(spec.destinations, faults);
  if (spec.replicas !== undefined && (!Number.isInteger(spec.replicas) || spec.replicas < 1)) {
    faults.push(invalid("spec.replicas", spec.replicas, "must be greater than or equal to 1"));
  }
  const strategy = spec.strategy?.type;
  if (strategy !== undefined && strategy !== "" && strategy !== "Recreate" && strategy !== "RollingUpdate") {
    faults.push(notSupported("spec.strategy.type", strategy, ["Recreate", "RollingUpdate"]));
  }
  if (spec.template !== undefined) checkTemplate(spec.template, faults);
  if (spec.sessionAffinity !== undefined && !["ClientIP", "None"].includes(spec.sessionAffinity)) {
    faults.push(notSupported("spec.sessionAffinity", spec.sessionAffinity, ["ClientIP", "None"]));
  }
  const seconds = spec.sessionAffinityConfig?.clientIP?.timeoutSeconds;
  if (seconds !== undefined && (!Number.isInteger(seconds) || seconds < 1 || seconds > 86_400)) {
    const field = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
    faults.push(invalid(field, seconds, "must be between 1 and 86400"));
  }
  if (spec.podDisruptionBudget !== undefined) checkBudget(spec.podDisruptionBudget, faults);
  faults.push(...accessFaults(spec), ...addressFaults(egress, old, context));
  const warnings = context.dualStack === true ? dualStackWarnings(destinations) : [];
  return {
    faults,
    warnings: [...warnings, ...networkWarnings(spec), ...accessWarnings(spec), ...addressWarnings(egress)],
  };
}

/** Coil allows it, so it is no fault. */
function networkWarnings({ template }: EgressSpec): string[] {
  if (template?.spec?.["hostNetwork"] !== true) return [];
  return [
    "spec.template.spec.hostNetwork: a router in the network of its node masquerades what all pods there send, and removes rules of priority 2000 and routes of table 118",
  ];
}

/** A DNS label of RFC 1035. */
const SERVICE_NAME = /^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** The names that API servers accept for any object; the server reports others. */
const OBJECT_NAME = /^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$/;

/** An Egress gives its name to its Service, and to its pods as a label. */
function checkName(name: string | undefined, faults: FieldFault[]): void {
  if (name === undefined || !OBJECT_NAME.test(name) || SERVICE_NAME.test(name)) return;
  const why = "is given to a Service too: it must begin with a letter, be without dots, and have at most 63 characters";
  faults.push(invalid("metadata.name", name, why));
}

function checkDestinations(texts: readonly string[], faults: FieldFault[]): Cidr[] {
  if (texts.length === 0) faults.push(required("spec.destinations", "at least one destination is needed"));
  const cidrs: Cidr[] = [];
  // An object of the largest size has 80,000, and a review must not hold up the program.
  const known = new Set<string>();
  for (const [at, text] of texts.entries()) {
    const field = `spec.destinations[${at}]`;
    const cidr = Cidr.tryParse(text);
    if (cidr === undefined) faults.push(invalid(field, text, "must be a CIDR, such as 10.0.0.0/8 or fd00::/8"));
    else if (known.has(String(cidr))) faults.push(duplicate(field, text));
    else {
      known.add(String(cidr));
      cidrs.push(cidr);
    }
  }
  return cidrs;
}

function dualStackWarnings(destinations: readonly Cidr[]): string[] {
  const allV4 = destinations.some((cidr) => cidr.family === 4 && cidr.prefixLength === 0);
  if (!allV4 || destinations.some((cidr) => cidr.family === 6)) return [];
  return [
    "spec.destinations: 0.0.0.0/0 without an IPv6 destination: IPv6 traffic of the clients does not use this egress",
  ];
}

const LABEL_VALUE = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;
const QUALIFIED_NAME = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

function checkTemplate(template: EgressPodTemplate, faults: FieldFault[]): void {
  faults.push(...podSpecFaults(template.spec));
  const at = "spec.template.metadata";
  for (const [key, value] of Object.entries(template.metadata?.labels ?? {})) {
    if (!isQualifiedName(key)) faults.push(invalid(`${at}.labels`, key, "is not a label key"));
    if (value.length > 63 || !LABEL_VALUE.test(value)) {
      faults.push(
        invalid(`${at}.labels`, value, "is not a label value: at most 63 of letters, digits, '-', '_' and '.'"),
      );
    }
  }
  for (const key of Object.keys(template.metadata?.annotations ?? {})) {
    // Annotation keys may have capitals in the prefix, as apimachinery lowers them before its check.
    if (!isQualifiedName(key.toLowerCase())) faults.push(invalid(`${at}.annotations`, key, "is not an annotation key"));
  }
}

/** True for `[prefix/]name` by the rules of apimachinery's IsQualifiedName. */
function isQualifiedName(text: string): boolean {
  const parts = text.split("/");
  const name = parts.at(-1) ?? "";
  if (parts.length > 2 || name.length > 63 || !QUALIFIED_NAME.test(name)) return false;
  const prefix = parts.length === 2 ? (parts[0] ?? "") : undefined;
  return prefix === undefined || (prefix.length <= 253 && DNS_SUBDOMAIN.test(prefix));
}

function checkBudget(budget: NonNullable<EgressSpec["podDisruptionBudget"]>, faults: FieldFault[]): void {
  const at = "spec.podDisruptionBudget";
  if (budget.minAvailable !== undefined && budget.maxUnavailable !== undefined) {
    faults.push(invalid(at, budget, "minAvailable and maxUnavailable cannot both be set"));
  }
  for (const name of ["minAvailable", "maxUnavailable"] as const) {
    const value = budget[name];
    if (value === undefined) continue;
    const ok =
      typeof value === "number"
        ? Number.isInteger(value) && value >= 0
        : /^\d{1,3}%$/.test(value) && Number.parseInt(value, 10) <= 100;
    if (!ok)
      faults.push(invalid(`${at}.${name}`, value, "must be a whole number of at least 0, or a percentage up to 100%"));
  }
}
