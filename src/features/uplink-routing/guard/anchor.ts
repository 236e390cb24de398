import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import {
  ANCHOR_PROTOCOL,
  type AnchorChange,
  type Anchored,
  type AnchorListing,
  isThere,
  keepsProtocols,
  planAnchors,
} from "./anchor-plan.ts";

type Stack = Pick<NetStack, "addresses">;

/** The addresses of pod listeners on their bridges, so that pods reach their own node. */
export class Anchors {
  readonly #stack: Stack;
  readonly #log: Logger;
  /** The anchors that this run assigned. Needed because Linux before 5.18 does not keep IFA_PROTO. */
  #assigned: readonly Anchored[] = [];

  constructor(stack: Stack, options: { readonly log: Logger }) {
    this.#stack = stack;
    this.#log = options.log;
  }

  /** Plans the changes: one function for each, which returns the number of changes made, or throws {@link KernelError}. */
  plan(listing: AnchorListing, listeners: readonly Anchored[]): readonly (() => number)[] {
    // If an address was removed and another program assigns it again, the address is not ours.
    this.#assigned = this.#assigned.filter((one) => isThere(listing, one));
    const former = keepsProtocols(listing) ? [] : this.#assigned;
    return planAnchors(listing, listeners, former).map((change) => () => this.#apply(change));
  }

  #apply(change: AnchorChange): number {
    const { kind, ifName, address } = change;
    if (!applyAnchor(this.#stack, change)) return 0;
    const others = this.#assigned.filter((one) => one.interface !== ifName || !one.address.equals(address));
    this.#assigned = kind === "remove" ? others : [...others, { address, interface: ifName, assignAddress: true }];
    if (kind === "assign") this.#log.info(`mgmtproxy: assigned ${address}/${address.bits} to ${ifName}`);
    return 1;
  }
}

/**
 * Plans the removal of the anchors that we have assigned: one function for each. On a kernel that does not keep IFA_PROTO, the anchors of
 * `listeners` count as ours.
 */
export function flushAnchors(
  stack: Stack,
  listing: AnchorListing,
  listeners: readonly Anchored[],
): readonly (() => number)[] {
  const former = keepsProtocols(listing) ? [] : listeners;
  return planAnchors(listing, [], former).map((change) => () => Number(applyAnchor(stack, change)));
}

/** Makes the change. False if another program has already made it, or the bridge was removed. */
function applyAnchor({ addresses }: Stack, { kind, linkIndex, address }: AnchorChange): boolean {
  const key = { linkIndex, address, prefixLength: address.bits };
  try {
    if (kind === "remove") addresses.delete(key);
    else addresses.add({ ...key, noDad: address.family === 6, protocol: ANCHOR_PROTOCOL });
    return true;
  } catch (error) {
    const expected = ["no-device", kind === "remove" ? "not-found" : "already-exists"] as const;
    if (expected.some((code) => isKernelError(error, code))) return false;
    throw error;
  }
}
