import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import type { Service, StoredMeta } from "#kube/client";
import { type Egress, egressNames } from "#kube/coil";
import type { Gateway } from "./plan.ts";

type Ref = Gateway["egress"];
type KeptMeta = Pick<StoredMeta, "name" | "namespace" | "uid" | "resourceVersion">;

/** An Egress as clients need it. */
export interface ClientEgress {
  readonly metadata: KeptMeta;
  readonly destinations: readonly Cidr[];
  /** Destinations that are not CIDRs; the webhook was not there when they were written. */
  readonly wrong: readonly string[];
  readonly sourcePortAuto: boolean;
  /** Absent: as `coild --enable-originating-only` says. */
  readonly originatingOnly?: boolean | undefined;
}

/** The Service of an Egress as clients need it. */
export interface ClientService {
  readonly metadata: KeptMeta;
  /** The ClusterIPs, at most one of a family. Empty if this is not the Service of an Egress, or has no address. */
  readonly addresses: readonly IpAddress[];
}

/** Where Egresses and their Services are looked up. */
export interface EgressSource {
  readonly egress: (ref: Ref) => Omit<ClientEgress, "metadata"> | undefined;
  readonly service: (ref: Ref) => Pick<ClientService, "addresses"> | undefined;
}

/** Something that a pod's annotations ask for and that does not exist. */
export interface ClientFault {
  /** Of `too-many`: the first that is left out. */
  readonly egress: Ref;
  readonly why:
    | "no-egress"
    | "not-a-name"
    | "too-many"
    | "no-destinations"
    | "no-service"
    | "no-service-address"
    | "no-pod-address"
    | "wrong-destination";
  /** Of `no-service-address`: the Service has an address of the other family only. Of `no-pod-address`. */
  readonly family?: IpFamily;
  /** Of `wrong-destination`. */
  readonly destination?: string;
}

/** The maximum length of a text from an object in a message. */
const SHOWN_LENGTH = 64;
/** Names of one pod that are looked up. */
const MAX_NAMES = 1000;
const FAMILIES: readonly IpFamily[] = [4, 6];
/** The labels of the Services of all Egresses (docs/spec/pod-network.md#2.1). */
const SERVICE_LABELS = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress" } as const;
/** {@link SERVICE_LABELS} as a selector. */
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
  const texts = [...new Set(spec?.destinations)];
  const parsed = texts.map((text) => ({ text, cidr: Cidr.tryParse(text) }));
  return {
    metadata: keptMeta(metadata),
    destinations: parsed.flatMap(({ cidr }) => cidr ?? []),
    wrong: parsed.filter(({ cidr }) => cidr === undefined).map(({ text }) => text.slice(0, SHOWN_LENGTH)),
    sourcePortAuto: spec?.fouSourcePortAuto === true,
    originatingOnly: spec?.originatingOnly,
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
  return refs.sort((a, b) => compare(a.namespace, b.namespace) || compare(a.name, b.name));
}

/** Pure: the Egresses that annotations name and that are looked up, sorted; at most 1000. */
export function namedEgresses(annotations: Readonly<Record<string, string>> | undefined): Ref[] {
  return allNamed(annotations).slice(0, MAX_NAMES);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

/** Whether an object can have this name and namespace: other texts must not get into the path of a request. */
export function isObjectRef({ namespace, name }: Ref): boolean {
  return /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/.test(namespace) && /^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$/.test(name);
}

/**
 * Pure: the gateways that a pod's annotations ask for, in the families that the pod has, and what is missing (docs/spec/pod-network.md#7).
 * The gateways are those that there are; a fault removes nothing else. Annotations may hold any text.
 */
export function gatewaysOf(
  annotations: Readonly<Record<string, string>> | undefined,
  source: EgressSource,
  families: readonly IpFamily[],
  defaults: Pick<Gateway, "originatingOnly">,
): { readonly gateways: readonly Gateway[]; readonly faults: readonly ClientFault[] } {
  const gateways: Gateway[] = [];
  const faults: ClientFault[] = [];
  for (const [at, ref] of allNamed(annotations).entries()) {
    if (at >= MAX_NAMES || !isObjectRef(ref)) {
      const shown = { namespace: ref.namespace.slice(0, SHOWN_LENGTH), name: ref.name.slice(0, SHOWN_LENGTH) };
      faults.push({ egress: shown, why: at >= MAX_NAMES ? "too-many" : "not-a-name" });
      continue;
    }
    const egress = source.egress(ref);
    if (egress === undefined) {
      faults.push({ egress: ref, why: "no-egress" });
      continue;
    }
    faults.push(
      ...egress.wrong.map((destination) => ({ egress: ref, why: "wrong-destination" as const, destination })),
    );
    if (egress.destinations.length + egress.wrong.length === 0) {
      faults.push({ egress: ref, why: "no-destinations" });
      continue;
    }
    const service = source.service(ref);
    if (service === undefined || service.addresses.length === 0) {
      faults.push({ egress: ref, why: service === undefined ? "no-service" : "no-service-address" });
      continue;
    }
    const { sourcePortAuto, originatingOnly = defaults.originatingOnly } = egress;
    for (const family of FAMILIES) {
      const destinations = egress.destinations.filter((one) => one.family === family);
      if (destinations.length === 0) continue;
      if (!families.includes(family)) {
        faults.push({ egress: ref, why: "no-pod-address", family });
        continue;
      }
      const address = service.addresses.find((one) => one.family === family);
      if (address === undefined) faults.push({ egress: ref, why: "no-service-address", family });
      else gateways.push({ egress: ref, address, destinations, sourcePortAuto, originatingOnly });
    }
  }
  return { gateways, faults };
}

/**
 * True if the Egress is there and its Service, the Service's address, or what the Egress is for, is not: it is being made or repaired. A pod keeps what it
 * has of it, so that its packets do not leave without NAT.
 */
export function isBeingRepaired({ why, family }: ClientFault): boolean {
  return why === "no-destinations" || why === "no-service" || (why === "no-service-address" && family === undefined);
}

/** True if waiting may help: the Egress or its Service is missing, so an ADD must be tried again (docs/spec/pod-network.md#20). */
export function isMissing(fault: ClientFault): boolean {
  return fault.why === "no-egress" || fault.why === "not-a-name" || isBeingRepaired(fault);
}

/** The fault as a sentence. */
export function faultText({ egress, why, family, destination }: ClientFault): string {
  const name = JSON.stringify(`${egress.namespace}/${egress.name}`);
  switch (why) {
    case "no-egress":
      return `Egress ${name} does not exist: create it, or correct the annotation egress.coil.cybozu.com/<namespace> of the pod`;
    case "not-a-name":
      return `${name} is not a name that an Egress can have: correct the annotation egress.coil.cybozu.com/<namespace> of the pod`;
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
        : `the Service of Egress ${name} has no IPv${family} address: destinations of IPv${family} are left out`;
    case "wrong-destination":
      return `Egress ${name}: destination ${JSON.stringify(destination)} is not a CIDR and is left out`;
  }
}
