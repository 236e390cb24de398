import { unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import { type KubeApi, type Node, resources } from "#kube/client";

/** Most nodes whose addresses are kept. */
export const MAX_NODES = 1000;
/** Shortest time between two readings, in milliseconds; up to a fifth more, at random. */
export const READ_MS = 600_000;
/** The same after a failure. */
export const RETRY_MS = 30_000;
const JITTER = 0.2;
const PAGE = 250;

/** Addresses and pods' ranges of the other nodes. */
export interface OtherNodes {
  /** Names by address, as text. */
  readonly nodes: ReadonlyMap<string, string>;
  readonly podCIDRs: readonly Cidr[];
}

/** Collaborators of {@link OtherNodesReader}. */
export interface OtherNodesDeps {
  readonly api: Pick<KubeApi, "listPages">;
  readonly onNodes: (nodes: OtherNodes) => void;
  readonly log: Logger;
  readonly clock: Clock;
  /** A number from 0 to 1. */
  readonly random: () => number;
}

const NONE: OtherNodes = { nodes: new Map(), podCIDRs: [] };

/**
 * Reads the other nodes, once a Service claims an external address and then every ten minutes, as a watch of all Nodes on all nodes would cost more than it
 * is worth. Above {@link MAX_NODES} none is kept.
 */
export class OtherNodesReader {
  readonly #deps: OtherNodesDeps;
  readonly #nodeName: string;
  readonly #needed = Promise.withResolvers<void>();
  #isReported = false;

  constructor(deps: OtherNodesDeps, nodeName: string) {
    this.#deps = deps;
    this.#nodeName = nodeName;
  }

  /** To be called when a Service claims an external address; further calls have no effect. */
  need(): void {
    this.#needed.resolve();
  }

  /** Reads until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const { clock, log, random, onNodes } = this.#deps;
    const spread = (ms: number): number => ms * (1 + JITTER * random());
    await unlessAborted(this.#needed.promise, { signal });
    const read = async (): Promise<PassResult> => {
      onNodes(await this.#read(signal));
      return { againMs: spread(READ_MS) };
    };
    await repeat(read, {
      ...{ signal, clock, everyMs: READ_MS, retryAfterMs: () => spread(RETRY_MS) },
      onFailure: (error) =>
        log.warn("cannot read the Nodes; what Services may claim is decided without the addresses of other nodes", {
          error: error.message,
        }),
    });
  }

  async #read(signal: AbortSignal): Promise<OtherNodes> {
    const nodes = new Map<string, string>();
    const podCIDRs: Cidr[] = [];
    let count = 0;
    for await (const { items } of this.#deps.api.listPages(resources.nodes, { limit: PAGE, signal })) {
      count += items.length;
      if (count > MAX_NODES) return this.#tooMany();
      for (const node of items) {
        if (node.metadata.name === this.#nodeName) continue;
        for (const text of addressesOf(node)) nodes.set(text, node.metadata.name);
        podCIDRs.push(...podCIDRsOf(node));
      }
    }
    return { nodes, podCIDRs };
  }

  #tooMany(): OtherNodes {
    if (!this.#isReported)
      this.#deps.log.warn("the cluster has too many Nodes: Services may claim addresses of other nodes", {
        max: MAX_NODES,
      });
    this.#isReported = true;
    return NONE;
  }
}

/** The addresses of a Node, as the texts of `IpAddress`. Pure. */
export function addressesOf(node: Node): string[] {
  return (node.status?.addresses ?? []).flatMap(({ address }) => {
    const cidr = Cidr.tryParse(`${address}/${String(address).includes(":") ? 128 : 32}`);
    return cidr === undefined ? [] : [cidr.base.toString()];
  });
}

/** The pods' ranges of a Node. Pure. */
export function podCIDRsOf({ spec }: Node): Cidr[] {
  return [spec?.podCIDR, ...(spec?.podCIDRs ?? [])].flatMap((text) => Cidr.tryParse(text ?? "") ?? []);
}
