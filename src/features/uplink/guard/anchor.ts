import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { ListenerSettings } from "../model/index.ts";

/** Three different things (spec uplink-proxy 12): there is no bridge, it has the address, it was given it. */
export type AnchorOutcome = "skipped" | "already-assigned" | "assigned";

type Anchored = Pick<ListenerSettings, "role" | "address" | "interface" | "assignAddress">;

/** Puts the pod listener's address on its bridge, as a /32 or /128, so that pods reach their own node. Throws {@link KernelError}. */
export function ensureAnchor(
  stack: Pick<NetStack, "links" | "addresses">,
  listener: Anchored,
  options: { readonly log: Logger },
): AnchorOutcome {
  const { address, interface: bridge, assignAddress } = listener;
  const link = bridge === undefined || !assignAddress ? undefined : stack.links.get({ name: bridge });
  if (link === undefined) return "skipped";
  const own = stack.addresses.list({ linkIndex: link.index });
  if (own.some((one) => one.address.equals(address))) return "already-assigned";
  try {
    stack.addresses.add({ linkIndex: link.index, address, prefixLength: address.bits, noDad: address.family === 6 });
  } catch (error) {
    // The bridge went away, or somebody was faster.
    if (isKernelError(error, "no-device")) return "skipped";
    if (isKernelError(error, "already-exists")) return "already-assigned";
    throw error;
  }
  options.log.info(`mgmtproxy: assigned ${address}/${address.bits} to ${link.name}`);
  return "assigned";
}

/** Takes the address off its bridge. How many changes: 0 or 1. Throws {@link KernelError}. */
export function removeAnchor(stack: Pick<NetStack, "links" | "addresses">, listener: Anchored): number {
  const { address, interface: bridge, assignAddress } = listener;
  const link = bridge === undefined || !assignAddress ? undefined : stack.links.get({ name: bridge });
  const own = link && stack.addresses.list({ linkIndex: link.index }).find((one) => one.address.equals(address));
  if (own === undefined) return 0;
  stack.addresses.delete(own);
  return 1;
}

/** Remembers which addresses were put on bridges, so that they go when their listener does: what was there before is somebody else's. */
export class Anchors {
  readonly #stack: Pick<NetStack, "links" | "addresses">;
  readonly #log: Logger;
  #assigned: readonly Anchored[] = [];

  constructor(stack: Pick<NetStack, "links" | "addresses">, options: { readonly log: Logger }) {
    this.#stack = stack;
    this.#log = options.log;
  }

  /** One piece of work for each listener that is there or has gone; each gives the number of its changes, or throws {@link KernelError}. */
  plan(listeners: readonly Anchored[]): readonly (() => number)[] {
    const gone = this.#assigned.filter((former) => !listeners.some((listener) => isSame(listener, former)));
    return [...gone.map((former) => () => this.#remove(former)), ...listeners.map((one) => () => this.#ensure(one))];
  }

  #remove(former: Anchored): number {
    const changes = removeAnchor(this.#stack, former);
    this.#assigned = this.#assigned.filter((one) => one !== former);
    return changes;
  }

  #ensure(listener: Anchored): number {
    if (ensureAnchor(this.#stack, listener, { log: this.#log }) !== "assigned") return 0;
    this.#assigned = [...this.#assigned.filter((one) => !isSame(one, listener)), listener];
    return 1;
  }
}

function isSame(a: Anchored, b: Anchored): boolean {
  return a.interface === b.interface && a.assignAddress === b.assignAddress && a.address.equals(b.address);
}
