import { isEqual } from "#base/collections";
import { type ClaimOf, claimText, type KernelClaim, type Span } from "./claims.ts";
import type { ClaimSet, Estate } from "./types.ts";

/** The claims of a set that count, and the reasons why others do not, one line each. */
export interface Accepted {
  readonly kernel: readonly KernelClaim[];
  readonly refused: readonly string[];
}

/** Tables of the kernel: unspecified, default, main, local. */
const KERNEL_TABLES: readonly number[] = [0, 253, 254, 255];
const MAIN_TABLE = 254;
/** Protocols below it are redirects, the kernel, ifconfig and administrators (RTPROT_STATIC is 4 in linux/rtnetlink.h). */
const FIRST_FREE_PROTOCOL = 5;
/** The protocols that linux/rtnetlink.h gives to routing daemons. */
const PROTOCOLS_OF_OTHERS: ReadonlySet<number> = new Set([
  ...[8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 42, 84, 99, 186, 187, 188, 189, 192],
]);
/** Priorities of the kernel's own rules begin here, but for that of the local table, which is 0. */
const LAST_PRIORITY = 32_765;

/**
 * The claims of a set that a program can own by its code: `template` is its estate with any flags. A claim has the id of one of the template and
 * its fixed fields; fields that flags change have numbers that nobody else has by convention. `isRoots`: root has written the set. Pure.
 */
export function acceptClaims(
  template: Estate,
  set: Pick<ClaimSet, "kernel">,
  { isRoots }: { readonly isRoots: boolean },
): Accepted {
  const own = template.kernel.flatMap(({ claims, flags = {} }) => claims.map((claim) => ({ claim, flags })));
  const kernel: KernelClaim[] = [];
  const refused: string[] = [];
  for (const claim of set.kernel) {
    const faults = own
      .filter((one) => one.claim.id === claim.id)
      .map((one) => faultOf(claim, one.claim, one.flags, isRoots));
    if (faults.includes(undefined)) kernel.push(claim);
    else refused.push(`${claimText(claim)}: ${faults[0] ?? "the program has no claim of this name"}`);
  }
  return { kernel, refused };
}

function faultOf(
  claim: KernelClaim,
  own: KernelClaim,
  flags: Readonly<Record<string, string>>,
  isRoots: boolean,
): string | undefined {
  const [given, fixed] = [claim, own] as unknown as readonly Readonly<Record<string, unknown>>[];
  const fields = new Set([...Object.keys(claim), ...Object.keys(own)]);
  const changed = [...fields].filter((field) => !isEqual(given?.[field], fixed?.[field]));
  const foreign = changed.find((field) => !(field in flags) || typeof given?.[field] !== typeof fixed?.[field]);
  if (foreign !== undefined) return `no flag of the program changes its ${foreign}`;
  // The tables of the template are the program's by its code.
  const checked = (field: string): boolean => changed.includes(field);
  if (claim.kind === "routes") return routesFault(claim, checked, isRoots);
  if (claim.kind === "rules") return rulesFault(claim, checked);
  return undefined;
}

function routesFault(
  { table, protocol }: ClaimOf<"routes">,
  isChanged: (field: string) => boolean,
  isRoots: boolean,
): string | undefined {
  if (isChanged("table") && isOfKernel(table)) return "the table is the kernel's";
  if (isChanged("protocol")) {
    if (protocol < FIRST_FREE_PROTOCOL) return "the protocol is that of the kernel, or of administrators";
    if (PROTOCOLS_OF_OTHERS.has(protocol)) return "the protocol is that of a routing daemon";
    if (table === MAIN_TABLE && !isRoots) return "only root may claim routes of the main table";
  }
  return undefined;
}

function rulesFault(
  { priority, table, protocol }: ClaimOf<"rules">,
  isChanged: (field: string) => boolean,
): string | undefined {
  if (isChanged("table") && isOfKernel(table)) return "the table is the kernel's";
  if (isChanged("priority") && (typeof priority !== "number" || priority < 1 || priority > LAST_PRIORITY))
    return "the priority is that of a rule of the kernel";
  if (isChanged("protocol") && (protocol === undefined || protocol < FIRST_FREE_PROTOCOL))
    return "the protocol is that of the kernel, or of administrators";
  return undefined;
}

function isOfKernel(table: Span): boolean {
  const [first, last] = typeof table === "number" ? [table, table] : table;
  return KERNEL_TABLES.some((one) => first <= one && one <= last);
}
