import type { IpAddress } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";

/** The alias of interfaces that this program has made and may remove. */
export const BIND_ALIAS = "ISTHMUS:bind";

/** The wanted state (docs/spec/tunnel.md#9.3). */
export interface WantedBind {
  /** Name of the dummy interface. */
  readonly name: string;
  readonly addresses: readonly IpAddress[];
  /** True if the kernel has no dummy interfaces: the addresses are on the loopback interface. */
  readonly onLoopback: boolean;
}

/** One change. The order of a plan's changes matters. */
export type BindStep =
  | { readonly op: "create" }
  /** Sets the interface up. */
  | { readonly op: "up" }
  | { readonly op: "add"; readonly address: IpAddress };

/** The changes, or the reason why they cannot be made. */
export type BindPlan =
  | { readonly kind: "steps"; readonly steps: readonly BindStep[] }
  | { readonly kind: "conflict"; readonly why: string };

/** The state of the kernel. */
export interface ObservedBind {
  readonly links: readonly Link[];
  readonly addresses: readonly Address[];
}

/** The interface that holds the addresses. */
export function bindLink({ links }: ObservedBind, { name, onLoopback }: WantedBind): Link | undefined {
  return links.find((link) => link.name === (onLoopback ? "lo" : name));
}

/**
 * The changes from the state to the wanted one. An interface and addresses that are as wanted are adopted: the plan has no steps for
 * them. Pure.
 */
export function planBind(state: ObservedBind, wanted: WantedBind): BindPlan {
  const link = bindLink(state, wanted);
  if (!wanted.onLoopback && link !== undefined && link.kind !== "dummy") {
    const kind = link.kind ?? "a physical or loopback device";
    return conflict(
      `interface ${wanted.name} exists and is ${kind}, not dummy: remove it, or choose another name with --bind-interface`,
    );
  }
  const steps: BindStep[] = [];
  if (link === undefined) steps.push({ op: "create" });
  else if (!link.up) steps.push({ op: "up" });
  for (const address of wanted.addresses) {
    const holder = state.addresses.find((held) => held.address.equals(address));
    if (holder === undefined) steps.push({ op: "add", address });
    else if (holder.linkIndex !== link?.index && !isLeftOnLoopback(state, holder)) {
      const name = state.links.find(({ index }) => index === holder.linkIndex)?.name ?? `number ${holder.linkIndex}`;
      return conflict(
        `${address} is already on interface ${name}: remove it there, choose another address, or set --manage-bind-interface=false`,
      );
    }
  }
  return { kind: "steps", steps };
}

/** True if an earlier run has added the address to the loopback interface, on a kernel without dummy interfaces. */
function isLeftOnLoopback({ links }: ObservedBind, { linkIndex, prefixLength, address }: Address): boolean {
  return prefixLength === address.bits && links.some(({ index, name }) => index === linkIndex && name === "lo");
}

function conflict(why: string): BindPlan {
  return { kind: "conflict", why };
}
