import { type ClaimOf, inSpan, type KernelClaim } from "#base/estate";
import { DEFAULT_SETTINGS, type Settings } from "#base/uplink-model";
import { isOwnTable, REPLACEMENT_SUFFIX } from "#features/service-proxy";
import { type NodeFacts, otherNumbers } from "#features/uninstall";
import { describeFlush, otherTables, settingsOfClaims } from "#features/uplink-routing";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import { familiesOf, type Rule } from "#kernel/rule";
import type { ReadEstates } from "../../shared/estate/index.ts";

/** Programs whose routes and rules are found by their numbers alone. */
const BY_NUMBER = ["coild", "coil-router"] as const;
type Owned = Pick<ReadEstates, "sets">;

/** The claims on the host that the sets of a program have, each once. Pure. */
export function claimsOf({ sets }: Owned, program: string): readonly KernelClaim[] {
  const all = sets.filter((set) => set.program === program).flatMap(({ kernel }) => kernel);
  const own = all.filter((claim) => claim.in === undefined);
  return [...new Map(own.map((claim) => [JSON.stringify(claim), claim])).values()];
}

/** The UDP ports of tunnels to Egresses in pods. Pure. */
export function tunnelPorts({ sets }: Owned): readonly number[] {
  const ports = sets.flatMap(({ program, kernel }) =>
    kernel.flatMap((claim) => (program === "coild" && claim.kind === "udp-port" ? [claim.port] : [])),
  );
  return [...new Set(ports)];
}

/** The rules and routes of `coild` and `coil-router`, by all their numbers. Throws `KernelError`. */
export function routing(stack: NetStack, owned: Owned): Pick<NodeFacts, "rules" | "routes"> {
  const families = familiesOf(stack.rules);
  const rules = families.flatMap((family) => stack.rules.list(family));
  return {
    rules: rules.filter((rule) => rulesClaims(owned).some((claim) => isClaimed(rule, claim))),
    routes: BY_NUMBER.flatMap((program) =>
      claimsOf(owned, program).flatMap((claim) => {
        if (claim.kind !== "routes" || typeof claim.table !== "number") return [];
        const { table, protocol } = claim;
        return families.flatMap((family) =>
          stack.routes.list({ family, table, protocol }).map((route) => ({ route, program })),
        );
      }),
    ),
  };
}

function rulesClaims(owned: Owned): readonly ClaimOf<"rules">[] {
  return claimsOf(owned, "coild").flatMap((claim) => (claim.kind === "rules" ? [claim] : []));
}

/** A rule with a selector is another program's, whatever its numbers are. */
function isClaimed({ priority, table, from, to, fwmark, iif }: Rule, claim: ClaimOf<"rules">): boolean {
  if (from !== undefined || to !== undefined || fwmark !== undefined || iif !== undefined) return false;
  return inSpan(claim.priority, priority) && inSpan(claim.table, table);
}

/** Rules and routes that look like those of a program with other numbers, one line each. Throws `KernelError`. */
export function lookalikes(stack: NetStack, owned: Owned, podLinks: ReadonlySet<number>): string[] {
  const families = familiesOf(stack.rules);
  const rules = families.flatMap((family) => stack.rules.list(family));
  const routes = families.flatMap((family) => stack.routes.list({ family }));
  return [
    ...otherNumbers({ rules, routes, podLinks }, claimsOf(owned, "coild")),
    ...otherTables(routes, uplinkSettings(owned)).map(
      (where) =>
        `routes of ${where} end as those of an uplink: if they were uplink-proxy's, run isthmus uplink-proxy --flush with the settings that it had`,
    ),
  ];
}

/** The settings of uplinks whose kernel objects may be there: those of each set, and the defaults. Pure. */
export function uplinkSettings({ sets }: Owned): readonly Settings[] {
  const found = sets.filter(({ program, kernel }) => program === "uplink-proxy" && kernel.length > 0);
  const settings = [...found.map(({ kernel }) => settingsOfClaims(kernel)), DEFAULT_SETTINGS];
  return [...new Map(settings.map((one) => [JSON.stringify(one), one])).values()];
}

/** Returns the kernel objects of `uplink-proxy`, one line each. Throws `KernelError` and `NftError`. */
export function uplinks(
  kernel: { readonly stack: NetStack; readonly nft: Nft },
  settings: readonly Settings[],
): readonly string[] {
  return [...new Set(settings.flatMap((one) => describeFlush(kernel, one)))];
}

/** Tables of `service-proxy` by its marks, whatever their name is. Throws `NftError` and `KernelError`. */
export function services({
  nft,
  elements,
}: {
  readonly nft: Nft;
  readonly elements: NftElements;
}): NodeFacts["services"] {
  return ([4, 6] as const).flatMap((family) => {
    const at = family === 4 ? "ip" : "ip6";
    const listed = nft
      .listTables(at)
      .map(({ name }) => (name.endsWith(REPLACEMENT_SUFFIX) ? name.slice(0, -REPLACEMENT_SUFFIX.length) : name));
    return [...new Set(listed)].flatMap((table) => {
      const own = [table, `${table}${REPLACEMENT_SUFFIX}`].some((name) =>
        isOwnTable(elements.names({ family: at, name })),
      );
      return own ? [{ family, table }] : [];
    });
  });
}
