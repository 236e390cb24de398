import type { NicClaim } from "#kube/nic";

/** The part of a claim that the check of a quota reads. */
export interface QuotaClaim {
  readonly uid: string;
  /** An instant of ISO 8601. */
  readonly createdAt: string;
  readonly ports: number;
  /** True if its ports were allowed already; it has them, or is making them. */
  readonly isAllowed: boolean;
}

/**
 * Returns the reason why the ports of a claim do not fit a tenant's quota (docs/spec/vpc-nics.md#4): after those that were allowed, claims get ports in the order in
 * which they were made, so that of claims that race for the last port exactly one gets it. Returns the message for the one that does not fit.
 * `others` are those of the tenant, without the claim. Pure.
 */
export function quotaFault(
  claim: QuotaClaim,
  others: Iterable<QuotaClaim>,
  tenant: { readonly name: string; readonly maxPorts?: number | undefined } | undefined,
): string | undefined {
  if (tenant?.maxPorts === undefined || claim.isAllowed) return undefined;
  let used = claim.ports;
  for (const other of others) if (other.isAllowed || isBefore(other, claim)) used += other.ports;
  if (used <= tenant.maxPorts) return undefined;
  return `tenant ${JSON.stringify(tenant.name)} would use ${used} ports of ${tenant.maxPorts}`;
}

function isBefore(one: QuotaClaim, other: QuotaClaim): boolean {
  return one.createdAt === other.createdAt ? one.uid < other.uid : one.createdAt < other.createdAt;
}

/** A claim and what is known of it beside the cache. */
export interface CountedClaim {
  readonly claim: NicClaim;
  /** True: its ports count already. */
  readonly isAllowed: boolean;
  /** The ports that it is being extended to have; 0 if it is not. */
  readonly growsTo: number;
}

/** The facts of a claim that the check of a quota counts; `ports` is at least `growsTo`. Pure. */
export function quotaClaim({ claim, isAllowed, growsTo }: CountedClaim): QuotaClaim {
  const { metadata, spec, status } = claim;
  const isReleasing = status?.phase === "Releasing" || metadata.deletionTimestamp !== undefined;
  const ports = isReleasing ? 0 : portsOf({ nics: spec.nics, shown: status?.nics ?? [] });
  return {
    uid: metadata.name,
    createdAt: metadata.creationTimestamp ?? "",
    ports: Math.max(ports, growsTo),
    isAllowed,
  };
}

/** The number of ports of NICs, and of those that are not released yet. Pure. */
export function portsOf({
  nics,
  shown,
}: {
  readonly nics: readonly { readonly name: string }[];
  readonly shown: readonly { readonly name: string }[];
}): number {
  return new Set([...nics, ...shown].map(({ name }) => name)).size;
}
