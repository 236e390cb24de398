import type { Clock } from "#base/clock";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import { RateLimitedLog } from "#base/rate-limit";
import { resources } from "#kube/client";
import { createInformer, type InformerApi, type InformerHealth } from "#kube/informer";
import { type AddressConflict, AddressOwners } from "./address-owners.ts";
import type { NodeClaims } from "./agent-gate.ts";
import { nodeAddresses } from "./node-addresses.ts";

/** Changes of Nodes that come within this time have no order, in milliseconds: after an outage a list brings them at once, in the order of names. */
export const BATCH_MS = 100;

export interface NodeBookDeps {
  readonly clock: Clock;
  readonly log: Logger;
  /** Addresses of balancers: a connection from one of them tells nothing about the agent behind it. Default: none. */
  readonly isBalancer?: ((address: string) => boolean) | undefined;
  /** Called with the addresses that a Node has got or lost. */
  readonly onChange: (addresses: ReadonlySet<string>) => void;
}

/** Follows the Nodes of the cluster, and knows whose an address is. Before the first list is read it is nobody's. */
export class NodeBook implements NodeClaims {
  readonly #deps: NodeBookDeps;
  readonly #excluded: readonly Cidr[];
  readonly #owners = new AddressOwners();
  readonly #warnings: RateLimitedLog;
  /** The addresses that Nodes have now, of those that have changed since the last batch. */
  #pending = new Map<string, ReadonlySet<string>>();
  #hasList = false;
  #cancelBatch: (() => void) | undefined;

  /** `excluded`: the ranges of pods and Services, of which no address is a Node's. */
  constructor(deps: NodeBookDeps, excluded: readonly Cidr[]) {
    this.#deps = deps;
    this.#excluded = excluded;
    this.#warnings = new RateLimitedLog(deps);
  }

  /** Follows the Nodes until the signal aborts. */
  async run(
    { api, onHealth }: { readonly api: InformerApi; readonly onHealth: (health: InformerHealth) => void },
    { signal }: { readonly signal: AbortSignal },
  ): Promise<void> {
    const nodes = createInformer(api, resources.nodes, {
      clock: this.#deps.clock,
      onHealth: (state) => {
        if (state.state === "ready" && !this.#hasList) {
          this.#hasList = true;
          this.#apply();
        }
        onHealth(state);
      },
      transform: ({ metadata, status }) => ({
        metadata: { name: metadata.name, uid: metadata.uid, resourceVersion: metadata.resourceVersion },
        addresses: nodeAddresses(status, this.#excluded),
      }),
    });
    nodes.addHandler({
      onAdd: ({ metadata, addresses }) => this.#note(metadata.name, addresses),
      // A Node is written every few minutes, and its addresses hardly ever change.
      onUpdate: (before, { metadata, addresses }) => {
        if ([...before.addresses].join() !== [...addresses].join()) this.#note(metadata.name, addresses);
      },
      onDelete: ({ metadata }) => this.#note(metadata.name, new Set()),
    });
    await nodes.run({ signal });
    this.#cancelBatch?.();
  }

  isOwner(node: string, address: string): boolean {
    return this.#owners.ownerOf(address) === node;
  }

  confirm(node: string, address: string): boolean {
    if (this.#deps.isBalancer?.(address) === true) return false;
    const decided = this.#owners.confirm(node, address);
    if (decided !== undefined) this.#warn(decided, "its agent connects from the address");
    return decided !== undefined;
  }

  #note(node: string, addresses: ReadonlySet<string>): void {
    this.#pending.set(node, addresses);
    if (this.#hasList) this.#cancelBatch ??= this.#deps.clock.after(BATCH_MS, () => this.#apply(), { unref: true });
  }

  #apply(): void {
    this.#cancelBatch = undefined;
    const changes = this.#pending;
    this.#pending = new Map();
    const { addresses, conflicts } = this.#owners.apply(changes);
    for (const conflict of conflicts) this.#warn(conflict, "the Node that was known with it first");
    if (addresses.size > 0) this.#deps.onChange(addresses);
  }

  #warn({ address, nodes, before, owner }: AddressConflict, why: string): void {
    const message =
      nodes.length > 1 ? "an address is in several Nodes" : "an address belongs to another Node than before";
    this.#warnings.warn(message, {
      ...{ address, nodes: nodes.join(","), before: before ?? "none", owner: owner ?? "none" },
      ...(owner === undefined || nodes.length === 1 ? {} : { why }),
    });
  }
}
