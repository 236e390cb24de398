import { Semaphore } from "#base/async";
import type { Clock } from "#base/clock";
import { readFact } from "#base/diagnosis";
import {
  endpointsOf,
  type Instance,
  type InstanceAnswer,
  instanceKey,
  nodeView,
  type Objects,
  SUITE_PROGRAMS,
  type SuiteFacts,
} from "#features/suite-report";
import { openKernel } from "#kernel/net";
import { type KubeClient, type KubeObject, type ListOptions, type ResourceType, resources } from "#kube/client";
import { coilResources } from "#kube/coil";
import { nicResources } from "#kube/nic";
import { readForwardOf } from "../../shared/filters/index.ts";
import {
  askInstance,
  collect,
  count,
  listOptional,
  listPods,
  REQUEST_MS,
  readPolicies,
  requireServer,
  suiteProcesses,
} from "../../shared/suite/index.ts";

/** The time in which all programs are asked, in milliseconds; those that are left then are not asked. */
const ASKING_MS = 10_000;
/** The maximum number of programs that are asked, and of those at the same time. */
const MAX_ASKED = 200;
const MAX_AT_ONCE = 16;
/** The maximum number of warnings that are read. */
const MAX_EVENTS = 2000;

const NO_POLICIES = { policies: 0, enforcers: [], k3sNodes: 0 };

/** Options of {@link readSuite}. */
export interface ReadOptions {
  readonly signal: AbortSignal;
  /** The namespace of the programs. Absent: all. */
  readonly namespace: string | undefined;
}

/**
 * Reads all that a report of the suite shows. What cannot be read is a fault in it. Rejects with `KubeError` only if the API server does not answer at
 * all, and with the signal's reason.
 */
export async function readSuite(
  api: KubeClient,
  { clock }: { readonly clock: Clock },
  { signal, namespace }: ReadOptions,
): Promise<SuiteFacts> {
  await requireServer(api, { signal });
  const all = <T extends KubeObject>(type: ResourceType<T>, options: ListOptions = {}): Promise<Objects<T>> =>
    listOptional(api, type, { ...options, signal });
  const [nodes, instances, pools, blocks, requests, egresses, routers, services, slices, claims, leases, events] =
    await Promise.all([
      readFact(() => collect(api, resources.nodes, { signal }, (node) => [nodeView(node)])),
      readFact(() => listPods(api, { signal, namespace })),
      all(coilResources.addressPools),
      all(coilResources.addressBlocks, { metadataOnly: true }),
      all(coilResources.blockRequests),
      all(coilResources.egresses),
      all(resources.deployments, { labelSelector: "app.kubernetes.io/name=coil,app.kubernetes.io/component=egress" }),
      readFact(() => count(api, resources.services, { signal })),
      readFact(() => count(api, resources.endpointSlices, { signal })),
      all(nicResources.nicClaims),
      all(resources.leases, { namespace: namespace ?? "kube-system" }),
      readEvents(api, signal),
    ]);
  const pods = "value" in instances ? instances.value : [];
  const hasPodNetwork = pods.some(({ program }) => program === "coild");
  const policies = hasPodNetwork ? await readFact(() => readPolicies(api, { signal })) : { value: NO_POLICIES };
  const processes = processInstances(pods);
  const answers = await askAll(api, [...pods, ...processes], signal);
  // Last: a long list of rules keeps this process from reading answers.
  const forward = await readMachine(suiteProcesses(), { signal });
  return {
    server: api.connection.server.origin,
    now: clock.now(),
    ...{
      nodes,
      instances,
      processes,
      answers,
      pools,
      blocks,
      requests,
      egresses,
      routers,
      services,
      slices,
      policies,
      claims,
      leases,
      forward,
      events,
    },
  };
}

/** Reads what packet filters of this machine do with packets of pods, where a coild makes links here. */
async function readMachine(
  processes: ReturnType<typeof suiteProcesses>,
  options: { readonly signal: AbortSignal },
): Promise<SuiteFacts["forward"]> {
  // A machine without coild need not let this command read anything of the kernel.
  if (!processes.some(({ program }) => program === "coild")) return undefined;
  const read = await readFact(async () => {
    const kernel = openKernel();
    using netns = kernel.openNetNs("own");
    using stack = kernel.openStack(netns);
    return { forward: await readForwardOf(processes, { stack, netns }, options) };
  });
  return "fault" in read ? read : read.value.forward;
}

async function readEvents(api: KubeClient, signal: AbortSignal): Promise<SuiteFacts["events"]> {
  return readFact(async () => {
    const found = [];
    let read = 0;
    const options = { signal, fieldSelector: "type=Warning", timeoutMs: REQUEST_MS };
    for await (const { items } of api.listPages(resources.events, options)) {
      read += items.length;
      found.push(...items.filter(({ reportingController = "" }) => Object.hasOwn(SUITE_PROGRAMS, reportingController)));
      if (read >= MAX_EVENTS) break;
    }
    return found;
  });
}

/** The programs of this machine that are not the containers of pods that the API server has told of. */
function processInstances(pods: readonly Instance[]): readonly Instance[] {
  const node = process.env["COIL_NODE_NAME"] ?? "";
  return suiteProcesses()
    .filter(({ program }) => !pods.some((pod) => pod.program === program))
    .map((one) => ({
      program: one.program,
      flags: one.flags,
      name: `process ${one.pid}`,
      pod: undefined,
      node,
      tag: undefined,
      isReady: true,
      reason: "",
      restarts: 0,
      ...endpointsOf(one),
    }));
}

async function askAll(
  api: KubeClient,
  instances: readonly Instance[],
  signal: AbortSignal,
): Promise<ReadonlyMap<string, InstanceAnswer>> {
  const answers = new Map<string, InstanceAnswer>();
  const budget = AbortSignal.any([signal, AbortSignal.timeout(ASKING_MS)]);
  const slots = new Semaphore(MAX_AT_ONCE);
  const asked = inOrder(instances).slice(0, MAX_ASKED);
  await Promise.all(
    asked.map(async (instance) => {
      try {
        const answer = await slots.run(() => askInstance(api, instance, { signal: budget }), { signal: budget });
        answers.set(instanceKey(instance), answer);
      } catch (error) {
        if (signal.aborted || !budget.aborted) throw error;
      }
    }),
  );
  return answers;
}

/** Those that are not ready first, then one of each kind after the other: of thousands of equal programs some are asked. */
function inOrder(instances: readonly Instance[]): readonly Instance[] {
  const places = new Map<string, number>();
  const ranked = instances
    // A pod that does not run cannot answer.
    .filter(({ isReady, restarts, reason }) => isReady || restarts > 0 || reason === "the readiness probe fails")
    .map((instance) => {
      const place = places.get(instance.program) ?? 0;
      places.set(instance.program, place + 1);
      return { instance, rank: instance.isReady ? place : -1 };
    });
  return ranked.sort((a, b) => a.rank - b.rank).map(({ instance }) => instance);
}
