import type { NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";

/** Something that a kernel may have or lack. */
export interface KernelFeature {
  /** `veth`, `vxlan`, `nf_tables`, … */
  readonly name: string;
  readonly available: boolean;
  /** One line: the finding, or the reason why it is missing. */
  readonly detail: string;
  /** The parts of the suite that need the feature, by their names in the documentation. Empty: no part depends only on this feature. */
  readonly affects: readonly string[];
}

/** Tries one feature in a namespace of its own. Returns a detail for operators; throws if the kernel lacks the feature. */
export interface FeatureProbe {
  readonly name: string;
  readonly affects: readonly string[];
  readonly attempt: (ns: NetNs, stack: NetStack) => string;
}
