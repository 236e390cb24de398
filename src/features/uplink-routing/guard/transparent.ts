import { IpAddress, type IpFamily } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import type { Settings } from "#base/uplink-model";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { type Nft, NftError, NftTransaction } from "#kernel/nft";
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
 * Puts the kernel's part of transparent mode in place; what was there of it is replaced. The redirection comes last, so that
 * nothing is taken before it can be delivered. Throws {@link KernelError} and {@link NftError}; then nothing is taken.
 */
export function installTransparent(
  stack: Stack,
  nft: Nft,
  settings: Settings,
  options: { readonly ownUid?: number; readonly leaseSeconds?: number; readonly log?: Logger } = {},
): void {
  const cgroups = usableCgroups(nft, settings.transparent.skipCgroups, options.log ?? nullLogger);
  const { ownUid, leaseSeconds } = options;
  const families = familiesOf(stack);
  const plan = planTransparent(settings, {
    cgroups,
    families,
    ...(ownUid === undefined ? {} : { ownUid }),
    ...(leaseSeconds === undefined ? {} : { leaseSeconds }),
  });
  for (const route of plan.routes) unlessThere(() => stack.routes.add(route));
  for (const rule of plan.rules) unlessThere(() => stack.rules.add(rule));
  nft.run(plan.nft);
}

/**
 * Takes it away again, the redirection first. Works without anything but the marks, so that a watchdog can do it for a proxy
 * that is no more. How many changes it took. Throws {@link KernelError} and {@link NftError}.
 */
export function removeTransparent(stack: Pick<Stack, "routes" | "rules">, nft: Nft, marks: TransparentMarks): number {
  let changes = 0;
  if (nft.listTables(TRANSPARENT_TABLE.family).some(({ name }) => name === TRANSPARENT_TABLE.name)) {
    nft.run(new NftTransaction(TRANSPARENT_TABLE).removeTable());
    changes += 1;
  }
  const { routes, rules } = transparentRouting(marks);
  for (const rule of rules) changes += ifThere(() => stack.rules.delete(rule));
  for (const route of routes) changes += ifThere(() => stack.routes.delete(route));
  return changes;
}

/** Goes on taking connections for so long. False when somebody has taken the table, or what is in it, away. Throws {@link NftError}. */
export function keepTransparent(nft: Nft, leaseSeconds: number): boolean {
  try {
    nft.run(renewLease(leaseSeconds));
    return true;
  } catch (error) {
    if (!(error instanceof NftError) || error.code !== "not-found") throw error;
    return false;
  }
}

/** Whether all of it is there, as far as a listing shows. Throws {@link KernelError} and {@link NftError}. */
export function hasTransparent(stack: Stack, nft: Nft, settings: Settings): boolean {
  const marks = transparentMarks(settings);
  const { mark, table, routeProtocol } = marks;
  return (
    nft.listTables(TRANSPARENT_TABLE.family).some(({ name }) => name === TRANSPARENT_TABLE.name) &&
    familiesOf(stack).every(
      (family) =>
        stack.routes
          .list({ family, table })
          .some(({ type, protocol }) => type === "local" && protocol === routeProtocol) &&
        stack.rules.list(family).some((rule) => rule.fwmark === mark && rule.table === table),
    )
  );
}

/** Without its loopback address IPv6 is switched off: the kernel takes no route over `lo` then, and there is nobody to listen. */
function familiesOf({ addresses }: Pick<Stack, "addresses">): readonly IpFamily[] {
  return addresses.list({ family: 6 }).some(({ address }) => address.equals(LOOPBACK6)) ? [4, 6] : [4];
}

/** The cgroups that this kernel and nft can match; others are told of and left out. */
function usableCgroups(nft: Nft, paths: readonly string[], log: Logger): string[] {
  return paths.filter((path) => {
    const tx = new NftTransaction({ family: "inet", name: "uplink_cgroup_check" }).addTable().chain("check");
    try {
      nft.check(tx.rule("check", `${cgroupMatch(path)} accept`));
      return true;
    } catch (error) {
      if (!(error instanceof NftError)) throw error;
      log.warn("connections of a cgroup cannot be skipped", { cgroup: path, error });
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
