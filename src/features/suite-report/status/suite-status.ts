import type { ForwardDrop } from "../forward-drops.ts";
import type { PolicyVerdict } from "../policies.ts";
import type { Rows } from "./rows.ts";

/** One program in one version. */
export interface ProgramRow {
  readonly program: string;
  /** The version by the program's own metric, else by the tag of its image; `unknown` without either. */
  readonly version: string;
  readonly instances: number;
  readonly ready: number;
  readonly nodes: number;
  readonly restarts: number;
  /** The number of instances that answered this report. */
  readonly asked: number;
}

/** A program that is not ready, or a part of which does not work. */
export interface NotReadyRow {
  readonly program: string;
  readonly name: string;
  readonly node: string;
  readonly why: string;
}

/** The status of the whole suite: the output of `isthmus status --json`. */
export interface SuiteStatus {
  /** True if everything that was found is ready, and the pods could be read. */
  readonly ready: boolean;
  /** RFC 3339. */
  readonly time: string;
  readonly server: string;
  readonly nodes: { readonly total: number; readonly ready: number; readonly kubelets: readonly string[] } | undefined;
  readonly programs: readonly ProgramRow[];
  readonly notReady: Rows<NotReadyRow>;
  /** Programs that are ready, and have parts that do not work. */
  readonly degraded: Rows<NotReadyRow>;
  /** Packet filters of this machine that drop what it forwards for pods; `undefined` where no coild makes links here, or they could not be read. */
  readonly forwardDrops: Rows<ForwardDrop> | undefined;
  readonly pools: Rows<{
    readonly name: string;
    readonly blocks: number;
    /** `undefined` for a pool whose spec cannot be read. */
    readonly maxBlocks: number | undefined;
    /** The number of used addresses of the coilds that answered. */
    readonly usedAddresses: number | undefined;
    readonly freeAddresses: number | undefined;
  }>;
  readonly requests: { readonly waiting: number; readonly failed: number } | undefined;
  readonly services: { readonly services: number; readonly slices: number } | undefined;
  /** The enforcement of NetworkPolicies; `undefined` without any. */
  readonly networkPolicies: { readonly state: PolicyVerdict["state"]; readonly text: string } | undefined;
  /** The links of the tunnel, of the programs that answered. */
  readonly tunnel: Rows<{
    readonly name: string;
    readonly program: string;
    readonly links: number;
    readonly text: string;
  }>;
  readonly uplinks: Rows<{ readonly name: string; readonly uplink: string; readonly works: boolean }>;
  readonly egresses: Rows<{
    readonly namespace: string;
    readonly name: string;
    readonly ready: number;
    readonly wanted: number;
  }>;
  readonly nics: { readonly claims: number; readonly phases: Readonly<Record<string, number>> } | undefined;
  readonly leaders: Rows<{
    readonly lease: string;
    readonly holder: string;
    readonly ageSeconds: number | undefined;
    readonly isStale: boolean;
  }>;
  readonly errors: Rows<{
    readonly time: string;
    readonly program: string;
    readonly object: string;
    readonly reason: string;
    readonly note: string;
    readonly count: number;
  }>;
  /** The parts that could not be read, each with the reason, mostly a missing right. */
  readonly notRead: readonly { readonly what: string; readonly why: string }[];
}
