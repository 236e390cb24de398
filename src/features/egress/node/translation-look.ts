import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import type { IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { repeat } from "#base/reconcile";
import type { ConntrackPort } from "#kernel/conntrack";
import type { EventRecorder } from "#kube/events";
import { tunnelSources } from "../client/index.ts";

/** The interval at which connection tracking is asked while the packets of a client have not been seen, milliseconds. */
const LOOK_MS = 30_000;
/** Sources that one look reads: many times the pods of a node. */
const MAX_SOURCES = 10_000;
const FAMILIES: readonly IpFamily[] = [4, 6];

/** A pod with a NAT client. */
export interface LookedPod {
  readonly uid: string;
  readonly name: string;
  readonly namespace: string | undefined;
  readonly addresses: readonly IpAddress[];
}

/** The note of the event of a pod whose packets leave the node with another source. */
export function translatedText({
  source,
  leavesAs,
}: {
  readonly source: IpAddress;
  readonly leavesAs: IpAddress;
}): string {
  return `the packets of the pod to its Egress leave this node as ${leavesAs} and not as ${source}, so no router takes them: the node translates sources. Look for kube-proxy's clusterCIDR without the pods' pool, masqueradeAll, or ipMasq of the plugin ptp or bridge`;
}

/**
 * Finds clients whose tunnel packets the node translates: a router knows its clients by their sources, and takes none of these packets. The connection tracking
 * of the node is asked until packets of each client were seen once. Holds one entry for each client of the node that was not seen yet.
 */
export class TranslationLook {
  readonly #parts: ConstructorParameters<typeof TranslationLook>[0];
  readonly #port: number;
  /** The pods whose packets were not seen yet, by UID. */
  readonly #unseen = new Map<string, LookedPod>();
  readonly #seen = new Set<string>();
  readonly #translated = new Set<string>();

  constructor(
    parts: {
      /** Opens the connection tracking of the node. */
      readonly openConntrack: () => ConntrackPort;
      readonly events: Pick<EventRecorder, "record">;
      readonly log: Logger;
      readonly clock: Clock;
    },
    { port }: { readonly port: number },
  ) {
    this.#parts = parts;
    this.#port = port;
  }

  /** The pods whose packets are translated. */
  get count(): number {
    return this.#translated.size;
  }

  /** A pod that has a client now. */
  add(pod: LookedPod): void {
    if (this.#seen.has(pod.uid) || this.#unseen.has(pod.uid)) return;
    this.#unseen.set(pod.uid, pod);
  }

  /** A pod that has no client any more. */
  forget(uid: string): void {
    for (const known of [this.#unseen, this.#seen, this.#translated]) known.delete(uid);
  }

  /** Looks until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock, log } = this.#parts;
    await repeat(() => this.look({ signal }), {
      signal,
      clock,
      everyMs: LOOK_MS,
      onFailure: (error) => log.debug("connection tracking cannot be read", { error: describeError(error) }),
    });
  }

  /** Asks once, unless the packets of all clients were seen. Rejects with `KernelError`. */
  async look(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    if (this.#unseen.size === 0) return;
    using conntrack = this.#parts.openConntrack();
    const sources = await tunnelSources(
      conntrack,
      { port: this.#port, families: FAMILIES, limit: MAX_SOURCES },
      options,
    );
    const bySource = new Map(sources.map((one) => [String(one.source), one]));
    for (const [uid, pod] of this.#unseen) {
      const found = pod.addresses.flatMap((address) => bySource.get(String(address)) ?? []);
      if (found.length === 0) continue;
      this.#unseen.delete(uid);
      this.#seen.add(uid);
      const translated = found.find(({ source, leavesAs }) => !source.equals(leavesAs));
      if (translated !== undefined) this.#tell(pod, translated);
    }
  }

  #tell({ uid, name, namespace }: LookedPod, found: Parameters<typeof translatedText>[0]): void {
    this.#translated.add(uid);
    const note = translatedText(found);
    this.#parts.log.warn("the packets of a client leave the node with another source", { namespace, pod: name, note });
    const regarding = { apiVersion: "v1", kind: "Pod", name, uid, ...(namespace === undefined ? {} : { namespace }) };
    this.#parts.events.record({ regarding, type: "Warning", reason: "EgressTranslated", note });
  }
}
