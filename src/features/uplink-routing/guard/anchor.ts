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
  /** Assigned by this run: Linux before 5.18 does not keep IFA_PROTO. */
  #assigned: readonly Anchored[] = [];

  constructor(stack: Stack, options: { readonly log: Logger }) {
    this.#stack = stack;
    this.#log = options.log;
  }

  /** One function for each change; it returns the number of changes made, or throws {@link KernelError}. */
  plan(listing: AnchorListing, listeners: readonly Anchored[]): readonly (() => number)[] {
    // An address that was removed by any program is not ours when it comes back.
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
 * Removes the anchors that we have assigned; on a kernel that does not keep IFA_PROTO, those of the listeners. One function
 * for each.
 */
export function flushAnchors(
  stack: Stack,
  listing: AnchorListing,
  listeners: readonly Anchored[],
): readonly (() => number)[] {
  const former = keepsProtocols(listing) ? [] : listeners;
  return planAnchors(listing, [], former).map((change) => () => Number(applyAnchor(stack, change)));
}

/** False if another program made the change, or the bridge was removed. */
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
