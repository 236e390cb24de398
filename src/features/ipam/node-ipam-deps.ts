import type { Clock } from "#base/clock";
import type { Logger } from "#base/log";
import type { BlockSource } from "./block-source.ts";

export interface NodeIpamOptions {
  /** The interval at which all blocks are compared with the API server, in milliseconds. */
  readonly collectIntervalMs: number;
  /** The time for which an empty block is kept for reuse, in milliseconds. 0: the block is released at once. */
  readonly releaseDelayMs: number;
  /** The time for which an ADD in a full pool waits for an address that a DEL frees, in milliseconds. Default 100. */
  readonly freedSoonMs?: number;
}

export interface NodeIpamDeps {
  readonly source: BlockSource;
  readonly log: Logger;
  readonly clock: Clock;
  /** Called after the set of this node's blocks has changed. */
  readonly onBlocksChanged: () => void;
  /** False while another machine may have pods in blocks that are empty here: none is released. Default: always true. Call {@link NodeIpam.noteMayRelease} when it changes. */
  readonly mayRelease?: () => boolean;
  /** Called when an ADD has ended its wait for an address, with or without one; seconds. */
  readonly onBlockWait?: (seconds: number) => void;
}
