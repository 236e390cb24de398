import type { MacAddress } from "#base/ip";
import type { LinkKind } from "#kernel/link";
import type { NetNs } from "#kernel/netns";
import type { Faults } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

/** The shared state of the fake ports of all namespaces. */
export interface FakeContext {
  readonly faults: Faults;
  /** The features that the fake kernel lacks. */
  readonly lacks: ReadonlySet<LinkKind | "fou" | "fou6" | "encap">;
  /** The namespace behind a handle. Throws {@link KernelError} `invalid` for a handle of another kernel. */
  resolve(ns: NetNs): FakeNamespace;
  /** An unused MAC address. */
  nextMac(): MacAddress;
}
