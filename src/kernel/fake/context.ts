import type { MacAddress } from "#base/ip";
import type { LinkKind } from "#kernel/link";
import type { NetNs } from "#kernel/netns";
import type { Faults } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

/** What the fake ports of all namespaces share. */
export interface FakeContext {
  readonly faults: Faults;
  /** What this kernel lacks. */
  readonly lacks: ReadonlySet<LinkKind | "fou" | "encap">;
  /** The namespace behind a handle. Throws {@link KernelError} `invalid` for a handle that is not of this kernel. */
  resolve(ns: NetNs): FakeNamespace;
  /** A MAC address that nobody has. */
  nextMac(): MacAddress;
}
