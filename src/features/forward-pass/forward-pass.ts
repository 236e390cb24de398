import type { Cidr, IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { NftElements } from "#kernel/nft-elements";
import { parseForward, planForward } from "./plan.ts";
import type { ForwardPlace, IptablesPort } from "./port.ts";

const FAMILIES: readonly IpFamily[] = [4, 6];
const TABLE = { 4: "ip", 6: "ip6" } as const;

/**
 * Lets packets of pods pass the chain FORWARD of iptables where others drop what they do not know (docs/spec/pod-network.md#5.8). Our rules are known by
 * their comments. Without such a chain nothing is run.
 */
export class ForwardPass {
  readonly #iptables: IptablesPort;
  readonly #elements: Pick<NftElements, "names" | "generation">;
  /** The transactions of nftables before the last sync that found nothing to do, and the blocks of that; `undefined` after a change and a failure. */
  #seen: string | undefined;

  constructor(deps: { readonly iptables: IptablesPort; readonly elements: Pick<NftElements, "names" | "generation"> }) {
    this.#iptables = deps.iptables;
    this.#elements = deps.elements;
  }

  /** Returns true if nftables or the blocks have changed since the last sync, or that failed. Cheap. Changes of the old variant are not seen: see {@link ForwardPass.hasLegacy}. */
  mayDiffer(blocks: readonly Cidr[]): boolean {
    return this.#seen === undefined || this.#seen !== this.#state(blocks);
  }

  /** Returns true if there are rules of the old variant, whose changes the kernel does not count. Cheap. */
  hasLegacy(): boolean {
    return FAMILIES.some((family) => this.#iptables.hasLegacy(family));
  }

  /**
   * Makes our rules those of these blocks. Returns the places that were changed. Rejects with the first `ForwardPassError` or `KernelError`, after all places were
   * tried. Idempotent.
   */
  async sync(blocks: readonly Cidr[]): Promise<readonly ForwardPlace[]> {
    // Before the chains are listed: a change of others during this sync makes the next one due.
    const state = this.#state(blocks);
    this.#seen = undefined;
    const changed: ForwardPlace[] = [];
    const failures: unknown[] = [];
    for (const place of this.#places()) {
      try {
        if (await this.#syncOne(place, blocks)) changed.push(place);
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
    // Our own changes have another state, so the next sync sees whether they are all.
    if (changed.length === 0) this.#seen = state;
    return changed;
  }

  /** The places that have rules of ours. Rejects as {@link ForwardPass.sync}. */
  async own(): Promise<readonly ForwardPlace[]> {
    const found: ForwardPlace[] = [];
    for (const place of this.#places()) {
      const rules = parseForward(await this.#iptables.list(place))?.rules ?? [];
      if (rules.some(({ comment }) => comment !== undefined)) found.push(place);
    }
    return found;
  }

  async #syncOne(place: ForwardPlace, blocks: readonly Cidr[]): Promise<boolean> {
    const chain = parseForward(await this.#iptables.list(place));
    const own = blocks.filter(({ family }) => family === place.family);
    const script = chain === undefined ? undefined : planForward(chain, own);
    if (script === undefined) return false;
    await this.#iptables.restore(place, script);
    return true;
  }

  #places(): ForwardPlace[] {
    return FAMILIES.flatMap((family): readonly ForwardPlace[] => {
      return [
        ...(this.#chainsOf(family).includes("FORWARD") ? [{ family, variant: "nft" } as const] : []),
        ...(this.#iptables.hasLegacy(family) ? [{ family, variant: "legacy" } as const] : []),
      ];
    });
  }

  /** A kernel without nf_tables has none. */
  #chainsOf(family: IpFamily): readonly string[] {
    try {
      return this.#elements.names({ family: TABLE[family], name: "filter" })?.chains ?? [];
    } catch (error) {
      if (!isKernelError(error, "unsupported")) throw error;
      return [];
    }
  }

  #state(blocks: readonly Cidr[]): string {
    return `${this.#generation()} ${blocks.map(String).sort().join(" ")}`;
  }

  #generation(): number {
    try {
      return this.#elements.generation();
    } catch (error) {
      if (!isKernelError(error, "unsupported")) throw error;
      return 0;
    }
  }
}
