import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { EventRecorder, Regarding } from "#kube/events";
import type { EgressRef } from "../access/index.ts";
import { crowdedText, type RefusedClient, SOURCE_PORT_COUNTS } from "../guard/index.ts";

/** The reason of the events of an Egress and of a client, where a router has no source port for new flows. */
const EXHAUSTED = "EgressPortsExhausted";
/** Pause between two passes while a router refuses flows, milliseconds. The kernel names a refused client for 5 s. */
const PASS_MS = 2000;
/** While no router refuses flows, each router is read in one of so many passes. */
const PASSES_AT_REST = 5;
/** The same event is not written again within this time, milliseconds. The API server keeps one for an hour. */
const AGAIN_MS = 600_000;
/** The maximum number of events that are remembered. While so many are, further ones are not written. */
const MAX_REMEMBERED = 2048;
/** The maximum number of clients that one pass looks up. Each is one request at most. */
const MAX_LOOKUPS = 5;
/** The event of an Egress names at most so many clients, and counts the others. */
const MAX_NAMED = 3;

/** Affinity leaves the clients of now with their router, and so does one UDP flow for all of a client's packets. */
const REMEDY =
  "More replicas of the Egress have more ports (spec.replicas); its pods use them all with spec.sessionAffinity None, and with FoU spec.fouSourcePortAuto";

/** A router of an Egress whose pod is on this node. */
export interface NodeRouter {
  readonly uid: string;
  /** Name of the pod. */
  readonly name: string;
  readonly egress: EgressRef;
  /** The clients that it refuses now. Rejects with `KernelError`, and when the signal aborts. */
  readonly refused: (options: AbortOptions) => Promise<readonly RefusedClient[]>;
}

/** The sources that {@link RefusedFlows} reads, and the recorder that it writes to. */
export interface RefusedFlowsParts {
  readonly routers: () => readonly NodeRouter[];
  /** `undefined` for an Egress that does not exist. */
  readonly egress: (ref: EgressRef) => Regarding | undefined;
  /** The pod that has this address and is a client of the Egress. Rejects with `KubeError`, and when the signal aborts. */
  readonly clientOf: (address: IpAddress, egress: EgressRef, options: AbortOptions) => Promise<Regarding | undefined>;
  readonly events: Pick<EventRecorder, "record">;
  readonly health: HealthPart;
  readonly log: Logger;
  readonly clock: Clock;
}

/** The clients that one router refuses at one destination. */
interface Refusal {
  readonly router: NodeRouter;
  readonly destination: string;
  readonly clients: readonly IpAddress[];
}

/** The note of the event of an Egress. `clients`: pods or addresses; all that are refused are `total`. */
export function egressNote(
  { router, destination }: Pick<Refusal, "router" | "destination">,
  { clients, total }: { readonly clients: readonly string[]; readonly total: number },
): string {
  const { all, common, share } = SOURCE_PORT_COUNTS;
  const more = total > clients.length ? ` and ${total - clients.length} more` : "";
  // The names come last: a note is cut at its end.
  return `Router ${router.name} refuses new flows to ${destination}: none of the ${common} source ports that all clients share is free, and none of the ${share} in the share of some clients. A router has ${all} ports to one destination. ${REMEDY}. Refused: ${clients.join(", ")}${more}`;
}

/** The note of the event of a client. */
export function clientNote({ router, destination }: Pick<Refusal, "router" | "destination">): string {
  const { common, share } = SOURCE_PORT_COUNTS;
  const { namespace, name } = router.egress;
  return `Router ${router.name} of Egress ${namespace}/${name} refuses new flows of this pod to ${destination}: none of the ${common} source ports that all clients share is free, and none of the ${share} in the pod's share. Let the pod keep fewer connections to it at a time. ${REMEDY}`;
}

/**
 * Writes events of Egresses and of their clients when a router on this node has no source port left for new flows (docs/spec/pod-network.md#9.3). The account of routers may
 * write none, so `coild` reads the routers' packet filters. Holds at most {@link MAX_REMEMBERED} events of the last ten minutes.
 */
export class RefusedFlows {
  readonly #parts: RefusedFlowsParts;
  /** Router, destination and client of an event → when it was written. In the order of time. */
  readonly #written = new Map<string, number>();
  #passes = 0;
  #isRefusing = false;

  constructor(parts: RefusedFlowsParts) {
    this.#parts = parts;
  }

  /** Reads the routers until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock, health } = this.#parts;
    await repeat(
      async () => {
        await this.pass({ signal });
        health.ok();
      },
      { signal, clock, everyMs: PASS_MS, onFailure: (error) => health.degraded(error) },
    );
  }

  /**
   * Reads the routers once, unless none has refused a flow lately and it is not their turn. A router that cannot be read, and a client that cannot be looked up, keep no
   * other from being reported. Rejects with the first such error: `KernelError` or `KubeError`.
   */
  async pass(options: AbortOptions): Promise<void> {
    this.#passes += 1;
    if (!this.#isRefusing && this.#passes % PASSES_AT_REST !== 1) return;
    this.#forgetOld();
    this.#isRefusing = false;
    const failures: ExpectedError[] = [];
    const lookups = { left: MAX_LOOKUPS };
    for (const router of this.#parts.routers()) {
      const refused = await unlessExpected(router.refused(options), failures);
      for (const [destination, found] of Map.groupBy(refused ?? [], crowdedText)) {
        this.#isRefusing = true;
        const refusal = { router, destination, clients: found.map(({ client }) => client) };
        await this.#report(refusal, { ...options, lookups, failures });
      }
    }
    const [first] = failures;
    if (first !== undefined) throw first;
  }

  async #report(
    refusal: Refusal,
    {
      lookups,
      failures,
      ...options
    }: AbortOptions & { readonly lookups: { left: number }; readonly failures: ExpectedError[] },
  ): Promise<void> {
    const { events, clientOf, egress, log } = this.#parts;
    const { router, destination, clients } = refusal;
    const key = `${router.uid} ${destination}`;
    const names: string[] = [];
    for (const client of clients) {
      const clientKey = `${key} ${client}`;
      if (lookups.left === 0) break;
      if (!this.#isNew(clientKey)) continue;
      lookups.left -= 1;
      const failed = failures.length;
      const pod = await unlessExpected(clientOf(client, router.egress, options), failures);
      if (failures.length > failed) continue;
      this.#remember(clientKey);
      if (pod === undefined) continue;
      names.push(`${pod.namespace}/${pod.name} (${client})`);
      events.record({ regarding: pod, type: "Warning", reason: EXHAUSTED, note: clientNote(refusal) });
    }
    const about = egress(router.egress);
    if (about === undefined || !this.#isNew(key)) return;
    this.#remember(key);
    const known = names.length > 0 ? names : clients.map(String);
    const note = egressNote(refusal, { clients: known.slice(0, MAX_NAMED), total: clients.length });
    log.warn("a router refuses new flows for want of source ports", {
      ...{ namespace: router.egress.namespace, egress: router.egress.name, note },
    });
    events.record({ regarding: about, type: "Warning", reason: EXHAUSTED, note });
  }

  #isNew(key: string): boolean {
    return this.#written.size < MAX_REMEMBERED && !this.#written.has(key);
  }

  #remember(key: string): void {
    this.#written.set(key, this.#parts.clock.monotonic());
  }

  #forgetOld(): void {
    const now = this.#parts.clock.monotonic();
    for (const [key, atMs] of this.#written) {
      if (now - atMs < AGAIN_MS) return;
      this.#written.delete(key);
    }
  }
}

async function unlessExpected<T>(work: Promise<T>, failures: ExpectedError[]): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    failures.push(error);
    return undefined;
  }
}
