import type { ProviderReason, Retry } from "#cloud/vpc";

/** Reasons of NICs beside those of providers (docs/spec/vpc-nics.md#12). */
export const OWN_REASONS = [
  "QuotaExceeded",
  "PortMismatch",
  "PortNotInVpc",
  "PortInUse",
  "PortError",
  "PortLost",
  "PortDown",
  "VifTypeUnsupported",
  "ProviderUnknown",
] as const;
export type NicReason = ProviderReason | (typeof OWN_REASONS)[number];

/** A failure of a NIC, whoever has found it. */
export interface NicFault {
  readonly reason: NicReason;
  readonly message: string;
  readonly retry: Retry;
  /** The pause that the provider asks for, in milliseconds. */
  readonly retryAfterMs?: number | undefined;
}

interface Pace {
  readonly initialMs: number;
  readonly maxMs: number;
}

const FAST: Pace = { initialMs: 500, maxMs: 60_000 };
const SLOW: Pace = { initialMs: 30_000, maxMs: 300_000 };
/** A binding is tried again by the same request; an agent that starts makes it succeed. */
const BINDING: Pace = { initialMs: 1000, maxMs: 30_000 };
const QUOTA: Pace = { initialMs: 10_000, maxMs: 300_000 };
/** The pause before a request that can never succeed is made again all the same, in milliseconds: people repair networks, and a provider can be wrong. */
const NEVER_MS = 300_000;
/** The share of a delay by which it varies, in both directions. */
const JITTER = 0.2;
/** The longest pause of all, in milliseconds; those that providers ask for are limited to five minutes. */
export const MAX_PAUSE_MS = NEVER_MS * (1 + JITTER);

/** Reasons that end when somebody gives something back, so a release of any port is a time to try again. */
const FREED_BY_RELEASE: readonly string[] = [
  "IpInUse",
  "MacInUse",
  "SubnetFull",
  "ProviderQuota",
  "QuotaExceeded",
  "PortInUse",
];

/**
 * The pause before the next attempt, in milliseconds (docs/spec/vpc-nics.md#5.9, #12). `attempts`: failures in a row, this one included;
 * `random` in [0, 1). Pure.
 */
export function retryDelayMs(fault: Omit<NicFault, "message">, attempts: number, random: number): number {
  if (fault.retry === "at-once") return 0;
  const spread = 1 - JITTER + 2 * JITTER * random;
  if (fault.retry === "never") return NEVER_MS * spread;
  const { initialMs, maxMs } = paceOf(fault);
  const delayMs = Math.min(maxMs, initialMs * 2 ** Math.min(Math.max(attempts, 1) - 1, 30)) * spread;
  return Math.max(delayMs, fault.retryAfterMs ?? 0);
}

function paceOf({ reason, retry }: Omit<NicFault, "message">): Pace {
  if (reason === "BindingFailed") return BINDING;
  if (reason === "ProviderQuota" || reason === "QuotaExceeded") return QUOTA;
  return retry === "fast" ? FAST : SLOW;
}

/** Returns true if this failure waits for one certain address, MAC or port, which few others can want. */
export function waitsForOne(reason: string | undefined): boolean {
  return reason === "IpInUse" || reason === "MacInUse" || reason === "PortInUse";
}

/** Returns true if a release of another pod's port can end this failure. */
export function endsByRelease(reason: string | undefined): boolean {
  return reason !== undefined && FREED_BY_RELEASE.includes(reason);
}
