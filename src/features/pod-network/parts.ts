import type { Logger } from "#base/log";
import type { Kernel, NetStack } from "#kernel/net";
import type { NetNs } from "#kernel/netns";
import type { AttachmentLinks } from "./attachment-links.ts";
import type { KnownLinks } from "./known-links.ts";
import type { LinkGuard } from "./link-guard.ts";
import type { PodNetworkOptions, PodRequest } from "./plan.ts";

export type Attachment = PodRequest["attachment"];

/**
 * Does work on the host's link of one pod that awaits nothing, and records that it is under way. `undefined`: it was not done, since the link is set aside. Throws what the
 * work throws.
 */
export type RecordedSteps = <T>(
  work: "attachment-reads" | "attachment-repairs",
  link: string,
  run: () => T,
) => { readonly value: T } | undefined;

/** The objects that the parts of a {@link PodNetwork} share. */
export interface Parts {
  readonly kernel: Kernel;
  /** The namespace of this process. */
  readonly own: NetNs;
  readonly host: NetStack;
  readonly log: Logger;
  readonly options: PodNetworkOptions;
  readonly guard: LinkGuard | undefined;
  readonly recorded: RecordedSteps;
  readonly links: AttachmentLinks;
  readonly known: KnownLinks;
  /** Failures that were already logged, so that each is logged once. Bounded by the number of steps. */
  readonly complained: Set<string>;
}
