import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { type Nft, NftError, NftTransaction } from "#kernel/nft";
import type { Route } from "#kernel/route";
import { familiesOf, type Rule } from "#kernel/rule";
import { FORMER_PROTOCOL } from "../routing/index.ts";
import {
  cgroupMatch,
  planTransparent,
  renewLease,
  TRANSPARENT_TABLE,
  type TransparentMarks,
  transparentMarks,
  transparentRouting,
} from "./transparent-plan.ts";

type Stack = Pick<NetStack, "addresses" | "routes" | "rules">;

const LOOPBACK6 = IpAddress.parse("::1");

/**
 * Installs the kernel's part of transparent mode; an existing one is replaced. The redirection comes last, so that
 * nothing is redirected before it can be delivered. Throws {@link KernelError} and {@link NftError}; then nothing is redirected.
 */
export function installTransparent(
  stack: Stack,
  nft: Nft,
  settings: Settings,
  options: { readonly ownUid?: number; readonly leaseSeconds?: number; readonly log: Logger },
): void {
  const cgroups = usableCgroups(nft, settings.transparent.skipCgroups, options.log);
  const { ownUid, leaseSeconds } = options;
  const families = familiesInUse(stack);
  const plan = planTransparent(settings, {
    cgroups,
    families,
    ...(ownUid === undefined ? {} : { ownUid }),
    ...(leaseSeconds === undefined ? {} : { leaseSeconds }),
  });
  // Objects of a former release get the present protocol number without a gap.
  const former = formerObjects(stack, transparentMarks(settings), families);
  for (const route of plan.routes) {
    const isThere = former.routes.some(({ family }) => family === route.dst.family);
    if (isThere) stack.routes.replace(route);
    else unlessThere(() => stack.routes.add(route));
  }
  for (const rule of plan.rules) {
    const besideEqual = former.rules.some(({ family }) => family === rule.family);
    unlessThere(() => stack.rules.add(rule, { besideEqual }));
  }
  for (const rule of former.rules) ifThere(() => stack.rules.delete(rule));
  nft.run(plan.nft);
}

/** Our objects with the protocol number of a former release, known by mark, table and priority; others have that number too. */
function formerObjects(
  { routes, rules }: Pick<Stack, "routes" | "rules">,
  { mark, table, rulePriority, routeProtocol }: TransparentMarks,
  families: readonly IpFamily[],
): { readonly routes: readonly Route[]; readonly rules: readonly Rule[] } {
  if (routeProtocol === FORMER_PROTOCOL) return { routes: [], rules: [] };
  const isOurs = (rule: Rule): boolean =>
    rule.protocol === FORMER_PROTOCOL && rule.fwmark === mark && rule.table === table && rule.priority === rulePriority;
  return {
    routes: families.flatMap((family) =>
      routes
        .list({ family, table })
        .filter(
          ({ type, dst, protocol }) => type === "local" && dst.prefixLength === 0 && protocol === FORMER_PROTOCOL,
        ),
    ),
    rules: families.flatMap((family) => rules.list(family).filter(isOurs)),
  };
}

/**
 * Removes the kernel's part of transparent mode, the redirection first. Needs only the marks, so that a watchdog can call it for a
 * proxy that has ended. Returns the number of changes. Throws {@link KernelError} and {@link NftError}.
 */
export function removeTransparent(stack: Pick<Stack, "routes" | "rules">, nft: Nft, marks: TransparentMarks): number {
  let changes = 0;
  if (nft.listTables(TRANSPARENT_TABLE.family).some(({ name }) => name === TRANSPARENT_TABLE.name)) {
    nft.run(new NftTransaction(TRANSPARENT_TABLE).removeTable());
    changes += 1;
  }
  const families = familiesOf(stack.rules);
  const former = formerObjects(stack, marks, families);
  for (const rule of former.rules) changes += ifThere(() => stack.rules.delete(rule));
  for (const route of former.routes) changes += ifThere(() => stack.routes.delete(route));
  const { routes, rules } = transparentRouting(marks, families);
  for (const rule of rules) changes += ifThere(() => stack.rules.delete(rule));
  for (const route of routes) changes += ifThere(() => stack.routes.delete(route));
  return changes;
}

/** Renews the lease of the redirection. False if another program has removed the table or its set. Throws {@link NftError}. */
export function keepTransparent(nft: Nft, leaseSeconds: number): boolean {
  try {
    nft.run(renewLease(leaseSeconds));
    return true;
  } catch (error) {
    if (!(error instanceof NftError) || error.code !== "not-found") throw error;
    return false;
  }
}

/** Returns true if the kernel has all parts of transparent mode, as far as a listing shows. Throws {@link KernelError} and {@link NftError}. */
export function hasTransparent(stack: Stack, nft: Nft, settings: Settings): boolean {
  const marks = transparentMarks(settings);
  const { mark, table, routeProtocol } = marks;
  return (
    nft.listTables(TRANSPARENT_TABLE.family).some(({ name }) => name === TRANSPARENT_TABLE.name) &&
    familiesInUse(stack).every(
      (family) =>
        stack.routes
          .list({ family, table })
          .some(({ type, protocol }) => type === "local" && protocol === routeProtocol) &&
        stack.rules.list(family).some((rule) => rule.fwmark === mark && rule.table === table),
    )
  );
}

/** Returns true if the kernel has rules of transparent mode, or routes in its table. Throws {@link KernelError}. */
export function hasTransparentRouting(stack: Stack, marks: TransparentMarks): boolean {
  const { mark, table, routeProtocol } = marks;
  const former = formerObjects(stack, marks, familiesInUse(stack));
  if (former.routes.length + former.rules.length > 0) return true;
  return familiesInUse(stack).some(
    (family) =>
      stack.routes.list({ family, table }).some(({ protocol }) => protocol === routeProtocol) ||
      stack.rules.list(family).some((rule) => rule.fwmark === mark && rule.table === table),
  );
}

/** The families in use. IPv6 is off if it has no loopback address: the kernel then accepts no IPv6 route over `lo`, and no bind. */
function familiesInUse({ addresses }: Pick<Stack, "addresses">): readonly IpFamily[] {
  return addresses.list({ family: 6 }).some(({ address }) => address.equals(LOOPBACK6)) ? [4, 6] : [4];
}

/** The cgroups that this kernel and nft can match. Other cgroups are logged and left out. */
function usableCgroups(nft: Nft, paths: readonly string[], log: Logger): string[] {
  return paths.filter((path) => {
    const tx = new NftTransaction({ family: "inet", name: "uplink_cgroup_check" }).addTable().chain("check");
    try {
      nft.check(tx.rule("check", `${cgroupMatch(path)} accept`));
      return true;
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      log.warn("cannot exclude the connections of a cgroup", { cgroup: path, error });
      return false;
    }
  });
}

function unlessThere(add: () => void): void {
  try {
    add();
  } catch (error) {
    if (!isKernelError(error, "already-exists")) throw error;
  }
}

function ifThere(remove: () => void): number {
  try {
    remove();
    return 1;
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return 0;
  }
}
