import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { Pod, Service, StoredMeta } from "#kube/client";
import { type Egress, egressNames, routerEgress } from "#kube/coil";
import {
  type AccessPod,
  compareRefs,
  type EgressAccess,
  egressAccess,
  type PodUse,
  type RefusalReason,
  refusalText,
  type UsedBy,
} from "../access/index.ts";
import type { Gateway } from "./plan.ts";

type Ref = Gateway["egress"];
type KeptMeta = Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion">;

/** An Egress as clients need it. */
export interface ClientEgress {
  readonly metadata: KeptMeta;
  readonly destinations: readonly Cidr[];
  /** Destinations that are not CIDRs, with their fields; neither the webhook nor the schema was there when they were written. */
  readonly wrong: readonly { readonly field: string; readonly text: string }[];
  readonly sourcePortAuto: boolean;
  /** Absent: as `coild --enable-originating-only` says. */
  readonly originatingOnly?: boolean | undefined;
  /** The rules of access: which pods may use the Egress, and which pods it selects. */
  readonly access: EgressAccess;
}

/** The Service of an Egress as clients need it. */
export interface ClientService {
  readonly metadata: KeptMeta;
  /** The ClusterIPs, at most one of a family. Empty if this is not the Service of an Egress, or has no address. */
  readonly addresses: readonly IpAddress[];
}

/** A router of an Egress as clients need it. */
export interface ClientRouter {
  readonly metadata: KeptMeta;
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  readonly addresses: readonly IpAddress[];
  /** True if the Service sends new flows to it: the pod is ready, and is not being deleted. */
  readonly isReady: boolean;
  /** True if the pod is being deleted. */
  readonly isEnding: boolean;
}

/** Pure: the view of a pod that is a router of an Egress in its namespace by its labels, whatever its state is: one that ends may still send answers. */
export function clientRouter({ metadata, status }: Pod): ClientRouter {
  const name = routerEgress(metadata.labels);
  const addresses = (status?.podIPs ?? []).flatMap(({ ip }) => IpAddress.tryParse(ip ?? "") ?? []);
  const egress = name === undefined ? "" : `${metadata.namespace}/${name}`;
  const isEnding = metadata.deletionTimestamp !== undefined;
  const isReady =
    !isEnding && (status?.conditions ?? []).some(({ type, status: state }) => type === "Ready" && state === "True");
  return { metadata: keptMeta(metadata), egress, addresses: name === undefined ? [] : addresses, isReady, isEnding };
}

/** The source of Egresses and their Services. */
export interface EgressSource {
  readonly egress: (ref: Ref) => Omit<ClientEgress, "metadata"> | undefined;
  readonly service: (ref: Ref) => Pick<ClientService, "addresses"> | undefined;
  /** The Egresses that a pod names and that exist, and those that select it, with the verdict on each: `AccessIndex.usesOf`. */
  readonly usesOf: (pod: AccessPod) => readonly PodUse[];
}

/** A pod as the choice of its Egresses needs it. */
export interface UsingPod {
  readonly namespace: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

/**
 * An Egress that a pod names or that selects it, by what the pod can have of it. `ready`: its gateways. `refused`: the pod may not use it. `missing`: it does not exist, or
 * cannot. `repairing`: see {@link isBeingRepaired}.
 */
export interface ClientUse {
  readonly egress: Ref;
  readonly by: UsedBy;
  readonly state: "ready" | "refused" | "missing" | "repairing";
  /** Those of the Egress; empty if it is missing. */
  readonly destinations: readonly Cidr[];
  /** The gateways of an Egress that is `ready`. */
  readonly gateways: readonly Gateway[];
  /** The destinations, of an Egress that is `ready`, in families that the pod has and the Service lacks. They have no gateway. */
  readonly lacking: readonly Cidr[];
}

/** Something that a pod's annotations ask for and that does not exist. */
export interface ClientFault {
  /** The first Egress that is left out because there are `too-many`. */
  readonly egress: Ref;
  readonly why:
    | "no-egress"
    | "not-a-name"
    | "refused"
    | "too-many"
    | "no-destinations"
    | "no-service"
    | "no-service-address"
    | "no-pod-address"
    | "wrong-destination";
  /** The missing family of `no-service-address`, where the Service has an address of the other family only, and of `no-pod-address`. */
  readonly family?: IpFamily;
  /** The text of a `wrong-destination`, and the field of the Egress that has it. */
  readonly destination?: string;
  readonly field?: string;
  /** The reason why the Egress is `refused`. */
  readonly reason?: RefusalReason;
  /** The namespace of the pod that is `refused`. */
  readonly podNamespace?: string;
}

/** The maximum length of a text from an object in a message. */
const SHOWN_LENGTH = 64;
/** Names of one pod that are looked up. */
const MAX_NAMES = 1000;
const FAMILIES: readonly IpFamily[] = [4, 6];
/** The labels of the Services of all Egresses (docs/spec/pod-network.md#2.1). */
const SERVICE_LABELS = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress" } as const;
/** {@link SERVICE_LABELS} as a selector. The pods of routers have them too. */
export const EGRESS_SERVICES: string = Object.entries(SERVICE_LABELS)
  .map(([key, value]) => `${key}=${value}`)
  .join(",");

const keptMeta = ({ name, namespace, uid, resourceVersion }: StoredMeta): KeptMeta => ({
  name,
  uid,
  resourceVersion,
  ...(namespace === undefined ? {} : { namespace }),
});

/** Pure: the view of an Egress. One without a spec has no destinations. */
export function clientEgress({ metadata, spec }: Egress): ClientEgress {
  const first = new Map<string, number>();
  for (const [at, text] of (spec?.destinations ?? []).entries()) if (!first.has(text)) first.set(text, at);
  const parsed = [...first].map(([text, at]) => ({ text, at, cidr: Cidr.tryParse(text) }));
  return {
    metadata: keptMeta(metadata),
    destinations: parsed.flatMap(({ cidr }) => cidr ?? []),
    wrong: parsed
      .filter(({ cidr }) => cidr === undefined)
      .map(({ text, at }) => ({ field: `spec.destinations[${at}]`, text: text.slice(0, SHOWN_LENGTH) })),
    sourcePortAuto: spec?.fouSourcePortAuto === true,
    originatingOnly: spec?.originatingOnly,
    access: egressAccess({ metadata, spec }),
  };
}

/** Pure: the view of a Service. */
export function clientService({ metadata, spec }: Service): ClientService {
  const isOfEgress = Object.entries(SERVICE_LABELS).every(([key, value]) => metadata.labels?.[key] === value);
  const texts = isOfEgress ? (spec?.clusterIPs ?? [spec?.clusterIP ?? ""]) : [];
  const addresses = texts.flatMap((text) => IpAddress.tryParse(text) ?? []);
  return {
    metadata: keptMeta(metadata),
    addresses: FAMILIES.flatMap((family) => addresses.find((one) => one.family === family) ?? []),
  };
}

/**
 * Pure: the Egresses that annotations name, sorted, and one at most of those beyond the first 1000. A name may be any text; {@link isObjectRef} tells
 * whether an object can have it.
 */
function allNamed(annotations: Readonly<Record<string, string>> | undefined): Ref[] {
  const refs = [...egressNames(annotations, MAX_NAMES + 1)].flatMap(([namespace, names]) =>
    names.map((name) => ({ namespace, name })),
  );
  return refs.sort(compareRefs);
}

/** Pure: the Egresses that annotations name and that are looked up, sorted; at most 1000. */
export function namedEgresses(annotations: Readonly<Record<string, string>> | undefined): Ref[] {
  return allNamed(annotations).slice(0, MAX_NAMES);
}

/** Returns true if an object can have this name and namespace: other texts must not get into the path of a request. */
export function isObjectRef({ namespace, name }: Ref): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(namespace) && /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name);
}

/** Pure: the view of a pod for the rules of access. */
export function accessPod({ namespace, labels, annotations }: UsingPod): AccessPod {
  return { namespace, labels, named: egressNames(annotations, MAX_NAMES) };
}

/**
 * Pure: the gateways of the Egresses that a pod names, or that select it, in the families that the pod has, and what is missing or refused
 * (docs/spec/pod-network.md#7 and #7.5). The gateways are those that there are; a fault removes nothing else. Annotations may hold any text. A refusal by a selector is
 * not the pod's, and is left out.
 */
export function gatewaysOf(
  pod: UsingPod,
  source: EgressSource,
  families: readonly IpFamily[],
  defaults: Pick<Gateway, "originatingOnly">,
): {
  readonly gateways: readonly Gateway[];
  readonly uses: readonly ClientUse[];
  readonly faults: readonly ClientFault[];
} {
  const uses: ClientUse[] = [];
  const faults: ClientFault[] = [];
  const found = source.usesOf(accessPod(pod));
  const verdicts = new Map(found.map(({ egress, use }) => [keyOf(egress), use]));
  for (const [at, ref] of allNamed(pod.annotations).entries()) {
    if (at >= MAX_NAMES || !isObjectRef(ref)) {
      const shown = { namespace: ref.namespace.slice(0, SHOWN_LENGTH), name: ref.name.slice(0, SHOWN_LENGTH) };
      faults.push({ egress: shown, why: at >= MAX_NAMES ? "too-many" : "not-a-name" });
      continue;
    }
    const verdict = verdicts.get(keyOf(ref));
    if (verdict?.kind === "refused") {
      const { destinations = [] } = source.egress(ref) ?? {};
      faults.push({ egress: ref, why: "refused", reason: verdict.reason, podNamespace: pod.namespace });
      uses.push({ egress: ref, by: "annotation", state: "refused", destinations, gateways: [], lacking: [] });
    } else uses.push(useOf({ egress: ref, by: "annotation" }, source, families, defaults, faults));
  }
  for (const { egress, use } of found) {
    if (use.kind !== "client" || use.by !== "selector") continue;
    uses.push(useOf({ egress, by: "selector" }, source, families, defaults, faults));
  }
  return { gateways: uses.flatMap(({ gateways }) => gateways), uses, faults };
}

const keyOf = ({ namespace, name }: Ref): string => `${namespace}/${name}`;

/** Returns the part of an Egress that a pod can use: its families and destinations. Appends to `faults`. */
function useOf(
  { egress: ref, by }: Pick<ClientUse, "egress" | "by">,
  source: EgressSource,
  families: readonly IpFamily[],
  defaults: Pick<Gateway, "originatingOnly">,
  faults: ClientFault[],
): ClientUse {
  const egress = source.egress(ref);
  const use = { egress: ref, by, destinations: egress?.destinations ?? [], gateways: [], lacking: [] };
  if (egress === undefined) {
    faults.push({ egress: ref, why: "no-egress" });
    return { ...use, state: "missing" };
  }
  for (const { field, text: destination } of egress.wrong)
    faults.push({ egress: ref, why: "wrong-destination", field, destination });
  if (egress.destinations.length + egress.wrong.length === 0) {
    faults.push({ egress: ref, why: "no-destinations" });
    return { ...use, state: "repairing" };
  }
  const service = source.service(ref);
  if (service === undefined || service.addresses.length === 0) {
    faults.push({ egress: ref, why: service === undefined ? "no-service" : "no-service-address" });
    return { ...use, state: "repairing" };
  }
  const gateways: Gateway[] = [];
  const lacking: Cidr[] = [];
  const { sourcePortAuto, originatingOnly = defaults.originatingOnly } = egress;
  for (const family of FAMILIES) {
    const destinations = egress.destinations.filter((one) => one.family === family);
    if (destinations.length === 0) continue;
    if (!families.includes(family)) {
      faults.push({ egress: ref, why: "no-pod-address", family });
      continue;
    }
    const address = service.addresses.find((one) => one.family === family);
    if (address === undefined) {
      faults.push({ egress: ref, why: "no-service-address", family });
      lacking.push(...destinations);
    } else gateways.push({ egress: ref, by, address, destinations, sourcePortAuto, originatingOnly });
  }
  return { ...use, state: "ready", gateways, lacking };
}

/**
 * True if the Egress is there and its Service, the Service's address, or what the Egress is for, is not: it is being made or repaired. A pod keeps what it
 * has of it, so that its packets do not leave without NAT.
 */
export function isBeingRepaired({ why, family }: ClientFault): boolean {
  return why === "no-destinations" || why === "no-service" || (why === "no-service-address" && family === undefined);
}

/** True if waiting may help: the Egress or its Service is missing, or the pod may not use it, so an ADD must be tried again (docs/spec/pod-network.md#20). */
export function isMissing(fault: ClientFault): boolean {
  return ["no-egress", "not-a-name", "refused"].includes(fault.why) || isBeingRepaired(fault);
}

/** The fault as a sentence. */
export function faultText({ egress, why, family, destination, field, reason, podNamespace = "" }: ClientFault): string {
  const name = JSON.stringify(`${egress.namespace}/${egress.name}`);
  switch (why) {
    case "no-egress":
      return `Egress ${name} does not exist: create it, or correct the annotation egress.coil.cybozu.com/<namespace> of the pod`;
    case "not-a-name":
      return `${name} is not a name that an Egress can have: correct the annotation egress.coil.cybozu.com/<namespace> of the pod`;
    case "refused":
      return refusalText(egress, podNamespace, { by: "annotation", reason: reason ?? "namespace-not-allowed" });
    case "too-many":
      return `the annotations of the pod name more than ${MAX_NAMES} Egresses; ${name} and the following are left out`;
    case "no-pod-address":
      return `Egress ${name}: the pod has no IPv${family} address; destinations of IPv${family} are left out`;
    case "no-destinations":
      return `Egress ${name} has no spec.destinations: give it some, or delete it`;
    case "no-service":
      return `Egress ${name} has no Service yet: coil-egress-controller makes it`;
    case "no-service-address":
      return family === undefined
        ? `the Service of Egress ${name} has no ClusterIP, or not the labels of an Egress's Service: delete it, so that it is made anew`
        : `the Service of Egress ${name} has no IPv${family} address: destinations of IPv${family} are unreachable`;
    case "wrong-destination":
      return `Egress ${name}: ${field} ${JSON.stringify(destination)} is not a CIDR, such as 10.0.0.0/8 (without leading zeros) or fd00::/8, and is left out`;
  }
}
