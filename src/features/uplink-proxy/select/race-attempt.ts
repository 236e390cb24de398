import type { LightAbortSignal } from "#base/async";
import type { IpAddress } from "#base/ip";
import type { DnsUplink } from "../dns/index.ts";
import type { Judgement } from "../policy/index.ts";
import type { DiallerDeps, DialResult } from "./dial-request.ts";
import type { Closable } from "./happy-eyeballs.ts";
import type { Candidate, Tier } from "./order.ts";
import type { Patience } from "./patience.ts";
import type { Trial } from "./penalties.ts";

/** Dependencies of a race. */
export interface RaceDeps<C extends Closable> extends DiallerDeps<C> {
  readonly patience: Patience;
}

/** The input of a race. */
export interface RaceInput {
  readonly tiers: readonly Tier[];
  /** The addresses of the destination if they are known without DNS, because it is an address or a name in /etc/hosts. */
  readonly known: readonly IpAddress[];
  /** Uplinks whose DNS servers may be queried when an uplink's own servers fail, cheapest first. */
  readonly others: () => readonly DnsUplink[];
}

/** A candidate that waits for its turn, with its tier. */
export interface QueuedAttempt {
  readonly candidate: Candidate;
  readonly tier: Tier;
}

/** A dial over one uplink that is under way. */
export interface Attempt<C extends Closable> extends QueuedAttempt {
  /** Set for a trial: it tries an uplink for all requests, and continues after its own request is served. */
  trial: Trial | undefined;
  /** An attempt of the same tier that began later was faster, which is counted already. */
  isOvertaken: boolean;
  readonly startedAt: number;
  /** Monotonic time from which the patience with it counts: its start, or the answer of the uplink's own DNS servers. */
  patienceFrom: number;
  readonly stop: LightAbortSignal;
  /** True while the attempt has no address to dial. */
  isResolving: boolean;
  /** Set once the attempt is connected; a cheaper attempt may still win. */
  won: DialResult<C> | undefined;
}

/** The addresses of a destination to which no uplink leads. `via`: whose DNS servers returned them; absent if no query was needed. */
export interface Bypass {
  readonly bypass: readonly IpAddress[];
  readonly via?: string | undefined;
}

/** The addresses of the destination that an uplink's DNS returned. */
export interface Resolved {
  readonly addresses: readonly IpAddress[];
  readonly judgement: Judgement;
  /** The uplink whose servers returned them; absent if no query was needed. */
  readonly via?: string;
}

/** The reason of an attempt that lost the race. */
export const LOST = new Error("another uplink connected faster");

/** The failure of an attempt that had its time when another one connected. */
export const NO_ANSWER = new DOMException("another uplink answered first", "TimeoutError");

/** The kernel's error for a new connection over a lost link; the kernel lets pending connections wait for an answer. */
export const LINK_LOST = Object.assign(new Error("network is down"), { code: "ENETDOWN" });
