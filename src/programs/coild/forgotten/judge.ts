import type { Clock } from "#base/clock";

/** An attachment of this node, as the kernel has it. */
export interface SeenAttachment {
  readonly containerId: string;
  readonly ifname: string;
  /** In the form of `IpAddress`. */
  readonly addresses: readonly string[];
}

/** What is known of a sandbox. `unknown`: whoever would know cannot be asked. */
export type SandboxState = "alive" | "gone" | "unknown";

/**
 * Remembers since when attachments have neither a sandbox nor a Pod object, and says which of them a runtime has forgotten. Holds at most one entry for each
 * attachment of the node.
 */
export class ForgottenJudge {
  readonly #graceMs: number;
  readonly #clock: Pick<Clock, "monotonic">;
  /** Container id and interface → monotonic milliseconds of the first look in a row that found neither. */
  #since: ReadonlyMap<string, number> = new Map();

  constructor(options: { readonly graceMs: number; readonly clock: Pick<Clock, "monotonic"> }) {
    this.#graceMs = options.graceMs;
    this.#clock = options.clock;
  }

  /**
   * Takes one look: `stateOf` tells whether an attachment's sandbox exists, `ofPods` has the addresses of the Pods of this node that have not ended. A sandbox
   * of which one address is a Pod's is that Pod's, with all its interfaces. Returns the attachments that lack both in every look for the grace.
   */
  look<A extends SeenAttachment>(
    attachments: readonly A[],
    stateOf: (containerId: string) => SandboxState,
    ofPods: ReadonlySet<string>,
  ): A[] {
    const now = this.#clock.monotonic();
    const owned = new Set<string>();
    for (const { containerId, addresses } of attachments)
      if (addresses.some((address) => ofPods.has(address))) owned.add(containerId);
    const lone = attachments.filter(({ containerId }) => !owned.has(containerId) && stateOf(containerId) === "gone");
    this.#since = new Map(lone.map((one) => [keyOf(one), this.#since.get(keyOf(one)) ?? now] as const));
    return lone.filter((one) => now - (this.#since.get(keyOf(one)) ?? now) >= this.#graceMs);
  }

  /** The number of attachments whose grace runs. */
  get waiting(): number {
    return this.#since.size;
  }
}

function keyOf({ containerId, ifname }: SeenAttachment): string {
  return `${containerId}/${ifname}`;
}
