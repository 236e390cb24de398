import type { Clock } from "#base/clock";
import type { Cidr } from "#base/ip";
import type { Logger } from "#base/log";
import type { Nft } from "#kernel/nft";
import type { ByteString, NftElements } from "#kernel/nft-elements";
import type { WantedTable } from "../plan/index.ts";
import type { RuleOptions } from "../rules/index.ts";
import type { GenerationTracker } from "./generation-tracker.ts";

export interface DataPlaneDeps {
  readonly nft: Nft;
  readonly elements: NftElements;
  readonly generations: GenerationTracker;
  readonly log: Logger;
  readonly clock: Clock;
}

/** Name, priority and rule options of a table. */
export interface TableOptions extends RuleOptions {
  readonly tableName: string;
  /** Added to the priority of every chain that packets enter by. Default 0: the documented priorities. */
  readonly priorityOffset?: number;
}

/** WantedState content of one family's table. */
export interface WantedState {
  readonly services: WantedTable;
  /** Keys of `nodeport-ips`. */
  readonly nodePortIPs: ReadonlySet<ByteString>;
  readonly serviceCIDRs: readonly Cidr[];
  /**
   * Does the work on a front end of a Service (`namespace/name`), and records that it is under way; `undefined`: it was not done, since the Service is set aside, and its
   * front end is left out. Default: the work is done.
   */
  readonly recorded?: (<T>(service: string, work: () => T) => { readonly value: T } | undefined) | undefined;
}

/** Result of a sync. */
export interface SyncReport {
  readonly kind: "full" | "partial";
  /** Elements added and deleted. */
  readonly changes: number;
  /** Number of these changes that no plan requested: the kernel's content was not what the last successful sync left. */
  readonly drift: number;
  /**
   * The table was not in force as the last successful sync left it, or as an earlier run did: elements had drifted, or rules were written
   * again.
   */
  readonly isRepair: boolean;
  readonly transactions: number;
  readonly bytes: number;
}

/**
 * Time after a commit, in milliseconds. After this time no packet is being processed that saw the state before the commit
 * (docs/spec/service-proxy.md#2.8).
 */
export const SETTLE_MS = 10;
