import { type AbortOptions, unlessAborted, withDeadline } from "#base/async";
import type { Clock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { type ClientDeps, type CniDeps, CniFailure, type CniFailureKind, type FoundPod } from "#features/cni";
import { IpamError, type NodeIpam } from "#features/ipam";
import { type PodNetwork, PodNetworkError, type PodNetworkErrorCode } from "#features/pod-network";
import { GuardError } from "#features/source-guard";
import { findObject, isApiFailure, type KubeApi, type Namespace, resources } from "#kube/client";
import {
  coilResources,
  DEFAULT_POOL,
  egressPoolName,
  MAX_LABEL_VALUE_LENGTH,
  POOL_ANNOTATION,
  routerEgress,
} from "#kube/coil";
import type { StoreReader } from "#kube/informer";
import { allowedBy, type ExtraSources } from "./extra-sources.ts";
import type { OwnNode } from "./own-node.ts";
import type { PodNotes } from "./pod-notes.ts";

/** The time for which an ADD waits for the API server before it fails, so that the runtime can try again (docs/spec/pod-network.md#20). */
const API_BUDGET_MS = 5000;
/** Maximum time that an ADD waits for the caches of a coild that has just started, and for the Node to be this machine's, in milliseconds. */
const READY_BUDGET_MS = 20_000;

/** Reason of the event of a pod that has no IPv6 address because of the MTU. */
export const IPV6_OMITTED = "Ipv6Omitted";

/** Connects the CNI service to IPAM, links and the API server. Converts failures to those that runtimes understand. */
export function cniDeps(parts: {
  readonly nodeName: string;
  readonly api: KubeApi;
  readonly ipam: NodeIpam;
  readonly network: PodNetwork;
  readonly namespaces: StoreReader<Pick<Namespace, "metadata">>;
  readonly clients: ClientDeps | undefined;
  readonly ready: Promise<void>;
  /** An ADD waits until the Node is this machine's: another machine with its name gives out the same addresses. */
  readonly ownNode: Pick<OwnNode, "untilOurs">;
  /** For STATUS: true once `ready` has resolved, and for a coild that replaces another one for as long as the executable tolerates its absence. */
  readonly isReady: () => boolean;
  /** The reason why this process cannot make links; `undefined` if it can. */
  readonly setUpFault: () => string | undefined;
  readonly oneSandboxPerPod: boolean;
  /** The sources that pods may use besides their addresses; `undefined` without a source guard. */
  readonly extraSources: Pick<ExtraSources, "forAdd" | "forget"> | undefined;
  /** Learns whose addresses are whose. */
  readonly notes: Pick<PodNotes, "know" | "forget" | "add">;
  readonly log: Logger;
  readonly clock: Clock;
}): CniDeps {
  const { api, ipam, network } = parts;
  return {
    nodeName: parts.nodeName,
    log: parts.log,
    clock: parts.clock,
    findPod: (namespace, name, options) => findPod(api, namespace, name, options),
    clients: parts.clients,
    poolOf: async (pod, options) =>
      // Without NAT clients coild needs no right on Egresses.
      (parts.clients === undefined ? undefined : await egressPoolOf(api, pod, options)) ??
      (await poolOf(parts, pod.namespace, options)),
    ready: (options) =>
      withDeadline(
        READY_BUDGET_MS,
        async (signal) => {
          await unlessAborted(parts.ready, { signal }).catch((error: unknown) => {
            throw new CniFailure("not-ready", "coild has just started and does not know this node's blocks yet", {
              cause: error,
            });
          });
          await parts.ownNode.untilOurs({ signal });
        },
        options,
      ),
    allocate: async (pool, attachment, options) => {
      // Calls for one container do not overlap, so an address that it has now was assigned by an earlier call.
      const fresh = ipam.assigned(attachment) === undefined;
      try {
        return { ...(await ipam.allocate(pool, attachment, options)), fresh };
      } catch (error) {
        if (!(error instanceof IpamError)) throw error;
        throw new CniFailure(error.code === "api-unavailable" ? "not-ready" : "try-again", error.message, {
          cause: error,
        });
      }
    },
    settle: (attachment) => ipam.settle(attachment),
    free: (attachment) => ipam.free(attachment),
    status: () => statusOf(ipam, { isReady: parts.isReady(), setUpFault: parts.setUpFault() }),
    oneSandboxPerPod: parts.oneSandboxPerPod,
    network: {
      setUp: async ({ addresses: { pool, ipv4, ipv6 }, networkName, pod, ...request }, options) => {
        const { extraSources: extra, notes } = parts;
        const allowed =
          extra === undefined ? undefined : await allowedBy(pod, (name, at) => namespaceOf(parts, name, at), options);
        const extraSources = extra?.forAdd(request.attachment, pod, allowed);
        notes.know(present(ipv4, ipv6), pod);
        const fault = ipv6 === undefined ? undefined : network.ipv6Fault(request.mtuBytes);
        const result = await asFailure(() =>
          network.setUp({ ...request, pod, network: networkName, pool, ipv4, ipv6, extraSources }),
        );
        if (fault !== undefined) {
          parts.log.warn("a pod got no IPv6 address", { namespace: pod.namespace, pod: pod.name, why: fault });
          notes.add(present(ipv4), { reason: IPV6_OMITTED, note: `The pod has no IPv6 address: ${fault}.` });
        }
        return result;
      },
      ofNetwork: (name) => network.ofNetwork(name),
      tearDown: async (attachment) => {
        await asFailure(() => network.tearDown(attachment));
        parts.extraSources?.forget(attachment);
        const own = ipam.assigned(attachment);
        parts.notes.forget(present(own?.ipv4, own?.ipv6));
      },
      check: (request) =>
        asFailure(async () => {
          const own = ipam.assigned(request.attachment);
          network.check({ ...request, addresses: present(own?.ipv4, own?.ipv6) });
        }),
    },
  };
}

/** Reads a pod live. Rejects with {@link CniFailure} `not-ready` after 5 s without an answer. */
export async function findPod(
  api: KubeApi,
  namespace: string,
  name: string,
  { signal }: AbortOptions,
): Promise<Awaited<ReturnType<CniDeps["findPod"]>>> {
  const pod = await apiCall(`read Pod ${namespace}/${name}`, () =>
    findObject(api, resources.pods, { namespace, name }, { signal, timeoutMs: API_BUDGET_MS }),
  );
  return pod === undefined
    ? undefined
    : {
        ...{ namespace, name, uid: pod.metadata.uid, nodeName: pod.spec?.nodeName },
        ...{ annotations: pod.metadata.annotations, labels: pod.metadata.labels },
      };
}

/**
 * The pool of the Egress whose router a pod is by its labels, if the Egress has addresses of its own (docs/spec/pod-network.md#8). The Egress is of the pod's
 * own namespace: a pod can so take an address only of an Egress whose routers it could use as well. Rejects with {@link CniFailure}.
 */
export async function egressPoolOf(
  api: Pick<KubeApi, "get">,
  { namespace, labels }: FoundPod,
  { signal }: AbortOptions,
): Promise<string | undefined> {
  const name = routerEgress(labels);
  if (name === undefined) return undefined;
  const egress = await apiCall(`read Egress ${namespace}/${name}`, () =>
    findObject(api, coilResources.egresses, { namespace, name }, { signal, timeoutMs: API_BUDGET_MS }),
  );
  return (egress?.spec?.addresses ?? []).length === 0 ? undefined : egressPoolName({ namespace, name });
}

/**
 * Pure: the answer to STATUS (docs/spec/pod-network.md#12). A runtime takes the node out of service after a failure, with all pods that run
 * there. So a full pool is none, which keeps out new pods alone, and which whoever may make pods can bring about.
 */
export function statusOf(
  ipam: Pick<NodeIpam, "lost" | "nodeGone">,
  { isReady, setUpFault }: { readonly isReady: boolean; readonly setUpFault: string | undefined },
): CniFailure | undefined {
  const lost = ipam.lost.length;
  if (lost > 0) {
    const message = `${lost} attachments are cut off: their address blocks do not belong to this node any more; delete their pods`;
    return new CniFailure("limited-connectivity", message);
  }
  if (ipam.nodeGone)
    return new CniFailure("limited-connectivity", "this Node was deleted; coild allocates no addresses");
  if (setUpFault !== undefined) return new CniFailure("not-available", setUpFault);
  if (!isReady)
    return new CniFailure("not-available", "coild has just started and does not know this node's blocks yet");
  return undefined;
}

/** The pool that the namespace's annotation names. A namespace that the cache does not have yet is read from the API server. */
async function poolOf(parts: Namespaces, name: string, options: AbortOptions): Promise<string> {
  const namespace = await namespaceOf(parts, name, options);
  const pool = namespace.metadata.annotations?.[POOL_ANNOTATION] ?? DEFAULT_POOL;
  // The name is used in link aliases and label selectors, and every user who may annotate a namespace can choose it.
  if (pool.length > MAX_LABEL_VALUE_LENGTH || !/^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$/.test(pool)) {
    const shown = JSON.stringify(pool.slice(0, MAX_LABEL_VALUE_LENGTH));
    throw new CniFailure(
      "try-again",
      `namespace ${name}: its annotation ${POOL_ANNOTATION} is ${shown}, which is not a pool name`,
    );
  }
  return pool;
}

/** The cache of Namespaces, and the API server for those that it does not have yet. */
interface Namespaces {
  readonly api: Pick<KubeApi, "get">;
  readonly namespaces: StoreReader<Pick<Namespace, "metadata">>;
}

/** A Namespace. Rejects with {@link CniFailure}, `unknown-pod` if it does not exist. */
async function namespaceOf(
  { api, namespaces }: Namespaces,
  name: string,
  { signal }: AbortOptions,
): Promise<Pick<Namespace, "metadata">> {
  const namespace =
    namespaces.get(name) ??
    (await apiCall(`read namespace ${name}`, () =>
      findObject(api, resources.namespaces, { name }, { signal, timeoutMs: API_BUDGET_MS }),
    ));
  if (namespace === undefined) throw new CniFailure("unknown-pod", `namespace ${name} does not exist`);
  return namespace;
}

function present(...addresses: readonly (IpAddress | undefined)[]): IpAddress[] {
  return addresses.filter((address) => address !== undefined);
}

/** Converts failures of the API server to those that runtimes understand. */
async function apiCall<T>(what: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isApiFailure(error)) throw error;
    throw new CniFailure("not-ready", `cannot ${what}: ${error.message}`, { cause: error });
  }
}

/** The kinds of CNI failures by error code. After `try-again`, the next attempt gets another address and may succeed. */
const KINDS: Readonly<Record<PodNetworkErrorCode, CniFailureKind>> = {
  "netns-not-found": "invalid-arguments",
  "own-netns": "invalid-arguments",
  "interface-exists": "internal",
  "address-in-use": "try-again",
  "no-interface": "invalid-config",
  "no-host-side": "invalid-config",
  // A repeated ADD succeeds once the uplink's MTU is raised.
  "mtu-too-small": "try-again",
  "bad-name": "invalid-arguments",
  "check-failed": "internal",
};

/** Converts failures of the pod network to failures that runtimes understand. */
export async function asFailure<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    // A link that cannot be guarded is not made.
    if (error instanceof GuardError) throw new CniFailure("try-again", error.message, { cause: error });
    if (!(error instanceof PodNetworkError)) throw error;
    throw new CniFailure(KINDS[error.code], error.message, { cause: error });
  }
}

/** The failure of a call that the runtime should make again. */
export const tryAgain = (why: string): CniFailure => new CniFailure("try-again", why);
