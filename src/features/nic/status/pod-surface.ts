import { isEqual } from "#base/collections";
import {
  CLAIM_ANNOTATION,
  NIC_STATUS_ANNOTATION,
  NICS_READY,
  type NicClaim,
  type NicStatus,
  tenantText,
} from "#kube/nic";
import { defaultNic } from "./default-nic.ts";

/** The annotation of the Kubernetes Network Plumbing Working Group, which other tools read. */
export const NETWORK_STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status";

/** One condition of a Pod's status. */
export interface PodCondition {
  readonly type: string;
  readonly status: "True" | "False" | "Unknown";
  readonly reason?: string;
  readonly message?: string;
  /** RFC 3339, in whole seconds. */
  readonly lastTransitionTime?: string;
}

/** The annotations and conditions by which a Pod shows its NICs (docs/spec/vpc-nics.md#3.3). */
export interface PodSurface {
  readonly annotations: Readonly<Record<string, string>>;
  /** The name of the entries of the network status that are ours; those with other names are another program's, such as Multus'. */
  readonly network: string;
  /** Without a time of transition. */
  readonly condition: PodCondition;
}

/** The part of a Pod that is read. */
export interface ShownPod {
  readonly metadata: { readonly annotations?: Readonly<Record<string, string>> | undefined };
  readonly status?: { readonly conditions?: readonly PodCondition[] | undefined } | undefined;
}

/** Returns the annotations and conditions that a Pod should have by its claim. Pure. */
export function podSurface({ metadata, spec, status }: NicClaim): PodSurface {
  const nics = status?.nics ?? [];
  const names = spec.nics.map(({ name }) => name);
  const chosen = spec.nics.find(({ defaultRoute }) => defaultRoute === true)?.name;
  // In the order of the pod; a NIC that has no status yet is unknown.
  const ordered = names.map((name): NicStatus => nics.find((nic) => nic.name === name) ?? { name, state: "Unknown" });
  return {
    annotations: {
      [CLAIM_ANNOTATION]: metadata.name,
      [NIC_STATUS_ANNOTATION]: JSON.stringify(ordered.map(nicOf)),
      [NETWORK_STATUS_ANNOTATION]: JSON.stringify(networksOf(ordered, { vpc: spec.vpc, chosen })),
    },
    network: spec.vpc,
    condition: readyCondition(ordered),
  };
}

/** The differences between a Pod and what it should show: annotations, and the condition with its time; each is absent if it is right. */
export function planPodSurface(
  pod: ShownPod,
  { annotations: wanted, network, condition }: PodSurface,
  { now }: { readonly now: number },
): { readonly annotations?: Readonly<Record<string, string>>; readonly condition?: PodCondition } {
  const shown = pod.metadata.annotations?.[NETWORK_STATUS_ANNOTATION];
  const ours = wanted[NETWORK_STATUS_ANNOTATION];
  const annotations =
    ours === undefined ? wanted : { ...wanted, [NETWORK_STATUS_ANNOTATION]: besideOthers(ours, shown, network) };
  const changed = Object.entries(annotations).filter(([key, value]) => pod.metadata.annotations?.[key] !== value);
  const before = pod.status?.conditions?.find(({ type }) => type === condition.type);
  const isRight =
    before?.status === condition.status && before.reason === condition.reason && before.message === condition.message;
  const moved = new Date(now).toISOString().replace(/\.\d+Z$/, "Z");
  const lastTransitionTime = (before?.status === condition.status ? before.lastTransitionTime : undefined) ?? moved;
  return {
    ...(changed.length === 0 ? {} : { annotations: Object.fromEntries(changed) }),
    ...(isRight ? {} : { condition: { ...condition, lastTransitionTime } }),
  };
}

/** A network status with our entries behind those of others, which have their interfaces and the default. What cannot be read is replaced. */
function besideOthers(ours: string, shown: string | undefined, network: string): string {
  const others = entriesOf(shown).filter(({ name }) => name !== network);
  if (others.length === 0) return ours;
  const interfaces = new Set(others.map((one) => one["interface"]));
  const hasDefault = others.some((one) => one["default"] === true);
  const own = entriesOf(ours).filter((one) => !interfaces.has(one["interface"]));
  const all = [
    ...others,
    ...own.map(({ default: isDefault, ...one }) =>
      hasDefault || isDefault !== true ? one : { ...one, default: true },
    ),
  ];
  // Other programs write it with blanks.
  return shown !== undefined && isEqual(entriesOf(shown), all) ? shown : JSON.stringify(all);
}

/** The entries of a network status, which anybody may have written. */
function entriesOf(text: string | undefined): readonly Readonly<Record<string, unknown>>[] {
  if (text === undefined) return [];
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    if (error instanceof SyntaxError) return [];
    throw error;
  }
  const isEntry = (one: unknown): one is Readonly<Record<string, unknown>> =>
    typeof one === "object" && one !== null && !Array.isArray(one);
  return Array.isArray(value) ? value.filter(isEntry) : [];
}

/** One NIC of the annotation with the state. */
function nicOf({ name, portID, state, reason, ips = [], mac }: NicStatus): object {
  return {
    name,
    ...(portID === undefined ? {} : { portID }),
    state,
    // A reason is told until it does not matter any more.
    ...(reason === undefined || state === "Ready" ? {} : { reason }),
    ...(ips.length === 0 ? {} : { ips: ips.map(({ ip, prefixLength }) => `${ip}/${prefixLength}`) }),
    ...(mac === undefined ? {} : { mac }),
  };
}

/** The NICs with addresses, as the network plumbing working group writes them. */
function networksOf(
  nics: readonly NicStatus[],
  { vpc, chosen }: { readonly vpc: string; readonly chosen: string | undefined },
): readonly object[] {
  const withDefault = defaultNic(nics, chosen)?.name;
  return nics
    .filter(({ ips = [] }) => ips.length > 0)
    .map(({ name, ips = [], mac, dns }) => ({
      name: vpc,
      interface: name,
      ips: ips.map(({ ip }) => ip),
      ...(mac === undefined ? {} : { mac }),
      ...(name === withDefault ? { default: true } : {}),
      dns: dns ?? {},
    }));
}

function readyCondition(nics: readonly NicStatus[]): PodCondition {
  const waiting = nics.filter(({ state }) => state !== "Ready");
  if (waiting.length === 0)
    return { type: NICS_READY, status: "True", reason: "AllReady", message: "all NICs are ready" };
  const [failed] = waiting.filter(({ state }) => state === "Failed");
  return {
    type: NICS_READY,
    status: "False",
    reason: failed === undefined ? "Waiting" : (failed.reason ?? "Failed"),
    message: waitingText(waiting),
  };
}

/** Such as `eth0=Failed(IpInUse: the address is in use), eth1=InProgress`: for conditions, events and errors of CNI, which tenants read. */
export function waitingText(nics: readonly NicStatus[]): string {
  return nics
    .map(({ name, state, ...nic }) => {
      const why = [nic.reason, tenantText(nic)].filter((one) => one !== undefined && one !== "").join(": ");
      return `${name}=${state}${why === "" ? "" : `(${why})`}`;
    })
    .join(", ");
}
