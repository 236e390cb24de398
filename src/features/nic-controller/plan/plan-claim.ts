import type { NamedNic, NicClaimPhase, NicStatus } from "#kube/nic";
import { hasPort, isDue, isPlumbed, needsGroups } from "./nic.ts";

/** The interval at which it is looked whether a node is lost that has to unplug something, in milliseconds. */
const END_CHECK_MS = 60_000;
/**
 * After this time, in milliseconds, nothing can be plugged any more for a pod that has ended: it gets no further ADD, and one that is at work is given up
 * by its executable after 60 s.
 */
const LAST_ADD_MS = 90_000;

/** A NIC that the pod does not want any more, and whose port is not released yet. */
export interface LeavingNic {
  readonly nic: NicStatus;
  /** True if nothing uses it: the node has told that it does not have it, or there is no node. */
  readonly isUnplugged: boolean;
}

/** The known facts of a claim's pod. */
export interface PodFacts {
  /** Its phase is Succeeded or Failed. */
  readonly isOver: boolean;
  /** For how long this process has known that it is over, in milliseconds; 0 if it is not. */
  readonly overForMs: number;
  /** As the pod says, or the claim, which may know it earlier. */
  readonly nodeName: string | undefined;
}

/** All that decides about a claim's next step. */
export interface ClaimView {
  readonly wishes: readonly NamedNic[];
  /** One for each wish, in their order. */
  readonly nics: readonly NicStatus[];
  /** NICs that the pod does not want any more. */
  readonly leaving: readonly LeavingNic[];
  /** True if the claim's NICs never changed. */
  readonly isOriginal: boolean;
  readonly phase: NicClaimPhase | undefined;
  /** True if the claim is being deleted. */
  readonly isDeleted: boolean;
  /** The pod with the claim's uid; `undefined`: the cache does not have it. */
  readonly pod: PodFacts | undefined;
  /** The API server was asked for the pod, and does not have it: the cache alone may be behind that of claims. */
  readonly podIsGone: boolean;
  /** The name of the pod's node at the provider. */
  readonly host: string | undefined;
  /** The node has told that the pod's interfaces are there. */
  readonly isPlugged: boolean;
  /** The node has told that the pod's interfaces are gone. */
  readonly isUnplugged: boolean;
  /** When the node has lost the devices of NICs with their sandbox, if it has, and has not plugged them since. */
  readonly lostAt: string | undefined;
  /** The node is gone, or has not been ready for five minutes. */
  readonly nodeIsLost: boolean;
  /** The reason why the tenant's quota forbids the ports; `undefined`: it allows them. */
  readonly quota: string | undefined;
  /** NICs without a port that likely have one by now: they are looked up before their pause is over. */
  readonly mayHavePort: ReadonlySet<string>;
  /** True if the ports with the claim's identity are known; not after a request that has given no port. */
  readonly isLookedUp: boolean;
  /** Milliseconds since the epoch. */
  readonly now: number;
}

/** The next step for a claim. */
export type ClaimStep =
  | { readonly do: "release" }
  /** The API server is asked whether the pod is gone. */
  | { readonly do: "look-for-pod" }
  | { readonly do: "refuse"; readonly why: string }
  | { readonly do: "look-up" }
  /** The ports of these NICs, which the pod does not want any more, are released. */
  | { readonly do: "give-up"; readonly names: readonly string[] }
  /** Ports get other security groups. */
  | { readonly do: "regroup"; readonly nics: readonly NamedNic[] }
  /** Ports are made for NICs, and users' ports are taken for others. */
  | { readonly do: "make"; readonly create: readonly NamedNic[]; readonly take: readonly NamedNic[] }
  /** Ports lose their binding, so that the next one makes their devices anew. */
  | { readonly do: "unbind"; readonly nics: readonly NamedNic[] }
  | { readonly do: "bind"; readonly nics: readonly NamedNic[]; readonly host: string }
  /** Nothing before this time, if it is given; the provider and the cluster may tell something earlier. */
  | { readonly do: "wait"; readonly untilMs: number | undefined };

interface Row {
  readonly name: string;
  readonly step: (view: ClaimView) => ClaimStep | undefined;
}

/** The states of a claim (docs/spec/vpc-nics.md#5.2): the first row that has a step says what is done. */
export const CLAIM_ROWS: readonly Row[] = [
  {
    name: "nobody uses the ports any more, so they are released",
    step: (view) => (mustRelease(view) ? { do: "release" } : undefined),
  },
  {
    name: "the cache does not have the pod, so the API server is asked before anything is released",
    step: ({ pod }) => (pod === undefined ? { do: "look-for-pod" } : undefined),
  },
  {
    name: "the claim or the pod is at its end and the node has not unplugged yet, so nothing is changed",
    step: ({ isDeleted, pod, isPlugged, now }) => {
      if (!isDeleted && pod?.isOver !== true) return undefined;
      const lastAddMs = pod?.isOver === true && !isPlugged ? LAST_ADD_MS - pod.overForMs : END_CHECK_MS;
      return { do: "wait", untilMs: now + Math.min(lastAddMs, END_CHECK_MS) };
    },
  },
  {
    name: "NICs that the pod does not want any more, and that the node has unplugged, lose their ports",
    step: ({ leaving, now }) => {
      const names = leaving.flatMap(({ nic, isUnplugged }) => (isUnplugged && isDue(nic, now) ? [nic.name] : []));
      return names.length === 0 ? undefined : { do: "give-up", names };
    },
  },
  {
    name: "the quota does not allow the ports",
    step: (view) => {
      if (view.quota === undefined) return undefined;
      return view.nics.some((nic) => isDue(nic, view.now)) ? { do: "refuse", why: view.quota } : waiting(view);
    },
  },
  {
    name: "ports of the identity may exist, so they are looked up before one is made",
    step: (view) => {
      const isLikely = view.nics.some(({ name, portID }) => portID === undefined && view.mayHavePort.has(name));
      const isNeeded = isLikely || lacking(view).some(({ portID }) => portID === undefined);
      return !view.isLookedUp && isNeeded ? { do: "look-up" } : undefined;
    },
  },
  {
    name: "NICs without a port get one",
    step: (view) => {
      const without = lacking(view);
      if (without.length === 0) return undefined;
      const [create, take] = [
        without.filter(({ portID }) => portID === undefined),
        without.filter(({ portID }) => portID !== undefined),
      ];
      return { do: "make", create, take };
    },
  },
  {
    name: "devices were lost with the sandbox, and a provider makes one only for a new binding, so their ports lose theirs",
    step: (view) => {
      const { host, lostAt } = view;
      if (host === undefined || lostAt === undefined) return undefined;
      const lost = due(view, (nic) => isPlumbed(nic, undefined) && nic.lostAt !== lostAt && nic.reason !== "PortLost");
      return lost.length === 0 ? undefined : { do: "unbind", nics: lost };
    },
  },
  {
    name: "the pod has a node, so its ports are bound there",
    step: (view) => {
      const { host } = view;
      if (host === undefined) return undefined;
      const unbound = due(view, (nic) => hasPort(nic) && !isPlumbed(nic, host) && nic.reason !== "PortLost");
      return unbound.length === 0 ? undefined : { do: "bind", nics: unbound, host };
    },
  },
  {
    name: "security groups of a NIC have changed, so its port gets them",
    step: (view) => {
      const nics = view.wishes.filter((wish, at) => {
        const nic = view.nics[at];
        return nic !== undefined && needsGroups(nic, wish, view.isOriginal) && isDue(nic, view.now);
      });
      return nics.length === 0 ? undefined : { do: "regroup", nics };
    },
  },
  { name: "all that can be done now is done", step: (view) => waiting(view) },
];

/** The next step of a claim. Pure. */
export function planClaim(view: ClaimView): ClaimStep {
  for (const { step } of CLAIM_ROWS) {
    const found = step(view);
    if (found !== undefined) return found;
  }
  throw new Error("the last row of the table has a step for every claim");
}

/** The phase that a claim shows, if it is not being released. Pure. */
export function phaseOf(
  { nics, quota, host }: Pick<ClaimView, "nics" | "quota" | "host">,
  isAllowed: boolean,
): NicClaimPhase {
  if (quota !== undefined || !isAllowed) return "Pending";
  if (nics.some(({ state }) => state === "Failed")) return "Failed";
  if (!nics.every(hasPort)) return "Creating";
  if (host === undefined && !nics.every((nic) => isPlumbed(nic, undefined))) return "Created";
  if (!nics.every((nic) => isPlumbed(nic, host))) return "Binding";
  return nics.every(({ state }) => state === "Ready") ? "Active" : "Plumbable";
}

/**
 * Nothing uses the ports: the pod is gone, or ended and unplugged, or was never plugged, or is on a node that is lost. Of a pod that kubelet has refused
 * the node tells nothing: its end and the time of an ADD say that it is not plugged.
 */
function mustRelease({ isDeleted, pod, podIsGone, isPlugged, isUnplugged, nodeIsLost }: ClaimView): boolean {
  if (pod === undefined) return podIsGone;
  if (!isDeleted && !pod.isOver) return false;
  if (isUnplugged || pod.nodeName === undefined || nodeIsLost) return true;
  return pod.isOver && !isPlugged && pod.overForMs >= LAST_ADD_MS;
}

/** Wishes whose NICs have no port and may be tried now. */
function lacking(view: ClaimView): readonly NamedNic[] {
  return due(view, (nic) => !hasPort(nic));
}

function due(view: ClaimView, isMeant: (nic: NicStatus) => boolean): readonly NamedNic[] {
  return view.wishes.filter((_wish, at) => {
    const nic = view.nics[at];
    return nic !== undefined && isMeant(nic) && isDue(nic, view.now);
  });
}

function waiting({ nics, leaving, now }: ClaimView): ClaimStep {
  const times = [...nics, ...leaving.map(({ nic }) => nic)].flatMap(({ nextRetryAt }) =>
    nextRetryAt === undefined ? [] : [Date.parse(nextRetryAt)],
  );
  if (leaving.some(({ isUnplugged }) => !isUnplugged)) times.push(now + END_CHECK_MS);
  const later = times.filter((time) => time > now);
  return { do: "wait", untilMs: later.length === 0 ? undefined : Math.min(...later) };
}
