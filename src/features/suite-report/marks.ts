import { claimText, fixedPart, inSpan, type KernelClaim, type Span } from "#base/estate";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** The kernel objects that a program owns on this host by one configuration. */
export interface ProgramClaims {
  readonly program: string;
  readonly kernel: readonly KernelClaim[];
  /** The user who wrote the configuration. Absent: root. */
  readonly uid?: number;
}

/** The routes and rules of this host, and who owns which. */
export interface MarkFacts {
  /** The newest configuration of each program. */
  readonly inForce: readonly ProgramClaims[];
  /** Earlier configurations, and the defaults of programs that left no estate and do not run. */
  readonly former: readonly ProgramClaims[];
  readonly routes: readonly Pick<Route, "family" | "table" | "protocol">[];
  readonly rules: readonly Pick<
    Rule,
    "family" | "priority" | "table" | "protocol" | "fwmark" | "from" | "to" | "iif"
  >[];
}

/** Objects with a mark of a program that is not in its configuration any more. */
export interface LeftOver {
  readonly program: string;
  /** The objects in words, as `2 routes of IPv4 with table 119, protocol 30`. */
  readonly what: string;
  /** A command that removes them. Absent where another user than root has named the numbers: they may be those of others. */
  readonly remedy?: string;
}

/** The kernel's own tables: unspecified, default, main, local. Several programs may write them. */
const KERNEL_TABLES: ReadonlySet<number> = new Set([0, 253, 254, 255]);

/** Marks that two programs have, one line each. Settings of the kernel are no marks: several programs may set them. Pure. */
export function sharedMarks(sets: readonly ProgramClaims[]): readonly string[] {
  const own = sets.flatMap(({ program, kernel }) =>
    kernel.flatMap((claim) => (claim.in === undefined && claim.kind !== "sysctl" ? [{ program, claim }] : [])),
  );
  return own.flatMap((one, at) =>
    own
      .slice(at + 1)
      .filter((other) => other.program !== one.program && overlaps(one.claim, other.claim))
      .map((other) => `${one.program} has ${claimText(one.claim)}, and ${other.program} ${claimText(other.claim)}`),
  );
}

/** Returns true if one kernel object can have the marks of both claims. Pure. */
function overlaps(one: KernelClaim, other: KernelClaim): boolean {
  switch (one.kind) {
    case "routes":
      return other.kind === "routes" && one.protocol === other.protocol && spansMeet(one.table, other.table);
    case "rules":
      return other.kind === "rules" && spansMeet(one.priority, other.priority) && spansMeet(one.table, other.table);
    case "links":
      return other.kind === "links" && prefixesMeet(one.alias, other.alias);
    case "link-groups":
      return other.kind === "link-groups" && spansMeet(one.groups, other.groups);
    case "link-names":
      return other.kind === "link-names" && one.names.some((name) => other.names.includes(name));
    case "nft-table":
      return other.kind === "nft-table" && one.family === other.family && one.name === other.name;
    case "comments":
      return other.kind === "comments" && prefixesMeet(one.comment, other.comment);
    case "address":
      return other.kind === "address" && one.address === other.address;
    case "mark":
      return other.kind === "mark" && one.value === other.value;
    case "udp-port":
      return other.kind === "udp-port" && one.port === other.port;
    case "sysctl":
      return false;
  }
}

function spansMeet(one: Span, other: Span): boolean {
  const [[first, last], [from, to]] = [one, other].map((span) => (typeof span === "number" ? [span, span] : span)) as [
    readonly [number, number],
    readonly [number, number],
  ];
  return first <= to && from <= last;
}

function prefixesMeet(one: string, other: string): boolean {
  const [a, b] = [fixedPart(one), fixedPart(other)];
  return a.startsWith(b) || b.startsWith(a);
}

/** Routes of others in the tables of programs of this host, one line for each table and protocol. Of a range of tables those count in which the program has a route. Pure. */
export function foreignRoutes({ inForce, routes }: Pick<MarkFacts, "inForce" | "routes">): readonly string[] {
  const claims = inForce.flatMap(({ program, kernel }) =>
    kernel.flatMap((claim) => (claim.kind === "routes" && claim.in === undefined ? [{ program, claim }] : [])),
  );
  const groups = Map.groupBy(
    routes.filter(({ table }) => !KERNEL_TABLES.has(table)),
    ({ family, table, protocol }) => `IPv${family} routes of protocol ${protocol} in table ${table}`,
  );
  return Array.from(groups).flatMap(([text, group]) => {
    const [{ table, protocol }] = group as [(typeof group)[0]];
    const owners = claims.filter(
      ({ claim }) =>
        claim.table === table || (inSpan(claim.table, table) && routes.some((one) => isOf(one, claim, table))),
    );
    if (owners.length === 0 || owners.some(({ claim }) => claim.protocol === protocol)) return [];
    return [`${group.length} ${text}, which is ${owners[0]?.program}'s`];
  });
}

function isOf(route: MarkFacts["routes"][number], { protocol }: { readonly protocol: number }, table: number): boolean {
  return route.table === table && route.protocol === protocol;
}

/**
 * Routes and rules with a mark of `former` that no configuration in force has. The main table is left out: others write it too, and a routing daemon may have
 * the protocol. Pure.
 */
export function leftOvers({ inForce, former, routes, rules }: MarkFacts): readonly LeftOver[] {
  const now = inForce.flatMap(({ kernel }) => kernel);
  const found = former.flatMap(({ program, kernel, uid = 0 }) =>
    kernel.flatMap((claim) => {
      if (claim.in !== undefined) return [];
      if (claim.kind === "routes")
        return groupsOf(
          { program, uid },
          claim,
          routes,
          (route) => hasRoute(claim, route) && !now.some((one) => hasRoute(one, route)),
        );
      if (claim.kind === "rules")
        return groupsOf(
          { program, uid },
          claim,
          rules,
          (rule) => hasRule(claim, rule) && !now.some((one) => hasRule(one, rule)),
        );
      return [];
    }),
  );
  return [...new Map(found.map((one) => [one.what, one])).values()];
}

function groupsOf<T extends { readonly family: number; readonly table: number; readonly protocol?: number }>(
  { program, uid }: { readonly program: string; readonly uid: number },
  claim: KernelClaim,
  listed: readonly T[],
  isLeft: (one: T) => boolean,
): readonly LeftOver[] {
  return Array.from(
    Map.groupBy(listed.filter(isLeft), ({ family }) => family),
    ([family, group]) => {
      const noun = claim.kind === "routes" ? "routes" : "rules";
      const ip = family === 4 ? "ip" : "ip -6";
      return {
        program,
        what: `${group.length} IPv${family} ${noun} of ${claimText(claim)}`,
        ...(uid === 0 ? { remedy: [...new Set(group.map((one) => removalOf(ip, claim, one)))].join("; ") } : {}),
      };
    },
  );
}

function removalOf(
  ip: string,
  claim: KernelClaim,
  one: { readonly table: number; readonly protocol?: number; readonly priority?: number },
): string {
  if (claim.kind === "routes") return `${ip} route flush table ${one.table} proto ${one.protocol}`;
  return `${ip} rule delete priority ${one.priority} lookup ${one.table}`;
}

function hasRoute(claim: KernelClaim, { table, protocol }: MarkFacts["routes"][number]): boolean {
  if (claim.kind !== "routes" || claim.in !== undefined || KERNEL_TABLES.has(table)) return false;
  return claim.protocol === protocol && inSpan(claim.table, table);
}

/** A rule with a protocol or a packet mark has that of the claim; without both, one with a selector is another program's. */
function hasRule(claim: KernelClaim, rule: MarkFacts["rules"][number]): boolean {
  if (claim.kind !== "rules" || claim.in !== undefined) return false;
  if (!inSpan(claim.priority, rule.priority) || !inSpan(claim.table, rule.table)) return false;
  if (claim.protocol !== undefined || claim.fwmark !== undefined) {
    const isMarked = claim.fwmark === undefined || claim.fwmark === rule.fwmark;
    return isMarked && (claim.protocol === undefined || claim.protocol === rule.protocol);
  }
  return [rule.from, rule.to, rule.fwmark, rule.iif].every((selector) => selector === undefined);
}
