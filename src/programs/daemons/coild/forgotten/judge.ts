import type { Clock } from "#base/clock";

/** An attachment of this node, as the kernel has it. */
export interface SeenAttachment {
  readonly containerId: string;
  readonly ifname: string;
  /** In the form of `IpAddress`. */
  readonly addresses: readonly string[];
}

/** A grace has at least this number of looks, all whole. */
const MIN_LOOKS = 3;

/** The state of a sandbox. `unknown`: its runtime cannot be asked. */
export type SandboxState = "alive" | "gone" | "unknown";

/**
 * Remembers since when attachments have neither a sandbox nor a Pod object, and says which of them a runtime has forgotten. Holds at most one entry for each
 * attachment of the node.
 */
export class ForgottenJudge {
  readonly #graceMs: number;
  readonly #clock: Pick<Clock, "monotonic">;
  /** Container id and interface → the first look in a row that found neither, in monotonic milliseconds, and the number of these looks. */
  #since: ReadonlyMap<string, { readonly fromMs: number; readonly looks: number }> = new Map();

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
    this.#since = new Map(
      lone.map((one) => {
        const { fromMs = now, looks = 0 } = this.#since.get(keyOf(one)) ?? {};
        return [keyOf(one), { fromMs, looks: looks + 1 }] as const;
      }),
    );
    return lone.filter((one) => {
      const { fromMs, looks } = this.#since.get(keyOf(one)) ?? { fromMs: now, looks: 0 };
      return looks >= MIN_LOOKS && now - fromMs >= this.#graceMs;
    });
  }

  /** A look could not be made whole: each grace begins anew. */
  interrupted(): void {
    this.#since = new Map();
  }

  /** The number of attachments whose grace runs. */
  get waiting(): number {
    return this.#since.size;
  }
}

function keyOf({ containerId, ifname }: SeenAttachment): string {
  return `${containerId}/${ifname}`;
}
