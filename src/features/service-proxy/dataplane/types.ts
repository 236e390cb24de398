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
  readonly log?: Logger;
  readonly clock?: Clock;
}

/** What the rules of a table depend on. */
export interface TableOptions extends RuleOptions {
  readonly tableName: string;
  /** Added to the priority of every chain that packets enter by. Default 0: the priorities that are public. */
  readonly priorityOffset?: number;
}

/** All that one family's table shall hold. */
export interface Desired {
  readonly services: WantedTable;
  /** Keys of `nodeport-ips`. */
  readonly nodePortIPs: ReadonlySet<ByteString>;
  readonly serviceCIDRs: readonly Cidr[];
}

/** What a sync did. */
export interface SyncReport {
  readonly kind: "full" | "partial";
  /** Elements added and deleted. */
  readonly changes: number;
  /** Those of them that nothing asked for since the last sync that succeeded: the kernel did not hold what was left there. */
  readonly drift: number;
  readonly transactions: number;
  readonly bytes: number;
}

/** Packets that saw what was before are through after this, milliseconds (docs/spec/service-proxy.md#2.8). */
export const SETTLE_MS = 10;
