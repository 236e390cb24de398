import { existsSync } from "node:fs";
import { dirname } from "node:path";
import { Journal, nicAgentState, ownerOf, type SandboxPlan } from "#features/nic-cni";
import { parseAlias } from "#features/pod-network";
import { guardTables } from "#features/source-guard";
import { BIND_ALIAS } from "#features/tunnel";
import type { LinkRole, NodeFacts } from "#features/uninstall";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import { formerSettingsPath, readFormerSettings } from "../../shared/former-settings/index.ts";
import { folderInRoot, inRoot, type NodePlaces } from "./places.ts";
import { files, outsidePaths, rootsPaths } from "./read-files.ts";
import { lookalikes, routing, services, uplinkSettings, uplinks } from "./read-marks.ts";
import { lockHolders, runningPrograms } from "./running-programs.ts";

/** The node's kernel. */
export interface NodeKernel {
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly elements: NftElements;
}

const RUN_ROOT = "/run";

/** Reads what a node has of the suite. `clients` are those of its pods, `forward` the chains of iptables with our rules. Changes nothing. Throws `KernelError`, `NftError`, `NicCniError`, and errors of the file system. */
export function readNode(
  kernel: NodeKernel,
  places: NodePlaces,
  { clients = [], forward = [], forwardFault }: Partial<Pick<NodeFacts, "clients" | "forward" | "forwardFault">> = {},
): NodeFacts {
  const { stack } = kernel;
  const { owned } = places;
  const links = stack.links.list().flatMap(({ index, name, alias = "" }) => {
    const role = roleOf(alias);
    return role === undefined ? [] : [{ index, name, alias, role }];
  });
  const podLinks = links.filter(({ role }) => role === "pod").map(({ index }) => index);
  const facts = {
    running: [...runningPrograms(places), ...lockHolders(places, locks(places))],
    links,
    ...journal(stack, places),
    clients,
    ...routing(stack, owned),
    otherNumbers: lookalikes(stack, owned, new Set(podLinks)),
    forward,
    forwardFault,
    guard: guardTables(kernel.elements),
    services: services(kernel),
    uplinks: uplinks(kernel, uplinkSettings(owned)),
    files: files(places),
    outside: outsidePaths(places),
    ...bindAddresses(stack, places),
    settings: formerPaths(places).flatMap((path) => changedSettings(stack, readFormerSettings(inRoot(places, path)))),
  };
  return { ...facts, unsure: [...owned.refused, ...unknownNumbers(facts, owned)] };
}

/** Pure: why numbers of programs that left traces are not known. */
function unknownNumbers(
  { links, routes, rules, guard, forward }: Pick<NodeFacts, "links" | "routes" | "rules" | "guard" | "forward">,
  { sets, known }: NodePlaces["owned"],
): readonly string[] {
  const isOfPods = ({ role }: NodeFacts["links"][number]): boolean => role === "pod" || role === "half-made";
  const traces = links.some(isOfPods) || routes.length + rules.length + guard.length + forward.length > 0;
  const isGiven = sets.some(({ program, source }) => program === "coild" && source === "flags");
  if (!traces || known.has("coild") || isGiven) return [];
  return [
    "coild has left no estate on this node, so other numbers than the defaults are not known: give those that it and coil-router had, also if they are the defaults (--pod-table-id, --pod-rule-prio, --export-table-id, --protocol-id, --router-protocol-id)",
  ];
}

function locks(at: NodePlaces): readonly (readonly [program: string, path: string])[] {
  return [...at.templates.keys()].flatMap((program) =>
    rootsPaths(at, program)
      .filter((path) => path.endsWith(".lock"))
      .map((path) => [program, path] as const),
  );
}

function formerPaths(at: NodePlaces): readonly string[] {
  return rootsPaths(at, "coild").filter((path) => path === formerSettingsPath(path));
}

/** The settings that were recorded and are there; the link of a setting may be gone. */
export function changedSettings(
  { sysctl }: Pick<NetStack, "sysctl">,
  former: Readonly<Record<string, string>>,
): NodeFacts["settings"] {
  return Object.entries(former).flatMap(([key, value]) => {
    try {
      return [{ key, former: value, now: sysctl.get(key) }];
    } catch (error) {
      if (!isKernelError(error, "not-found")) throw error;
      return [];
    }
  });
}

function roleOf(alias: string): LinkRole | undefined {
  if (alias === BIND_ALIAS) return "bind";
  if (ownerOf(alias) !== undefined) return "nic";
  switch (parseAlias(alias)?.kind) {
    case "attached":
      return "pod";
    case "pending":
      return "half-made";
    case "adopted":
      return "chained";
    case undefined:
      return undefined;
  }
}

/** The bind addresses of the tunnel that are not on the interface of `proxy-agent`: `loopback` are its own, the others are named. */
function bindAddresses(
  stack: NetStack,
  { bindAddress, owned }: NodePlaces,
): Pick<NodeFacts, "bindAddresses" | "loopback"> {
  const links = new Map(stack.links.list().map((link) => [link.index, link]));
  const claimed = loopbackClaims(owned);
  const loopback: NodeFacts["loopback"][number][] = [];
  const others: string[] = [];
  for (const { linkIndex, address, prefixLength, scope } of stack.addresses.list()) {
    const link = links.get(linkIndex);
    if (link === undefined || link.alias === BIND_ALIAS || !bindAddress.some((one) => one.equals(address))) continue;
    // IPv6 has no such scope.
    const isOfAgent = prefixLength === address.bits && (scope === "host" || address.family === 6);
    if (link.name === "lo" && isOfAgent && claimed.has(String(address)))
      loopback.push({ linkIndex, address, prefixLength });
    else others.push(`${address}/${prefixLength} on ${link.name}`);
  }
  return { bindAddresses: others, loopback };
}

/** Addresses that estates of root claim: of other users the mark on an address of lo, its scope, is too little. */
function loopbackClaims({ sets }: NodePlaces["owned"]): ReadonlySet<string> {
  const claims = sets
    .filter(({ program, source, uid }) => program === "proxy-agent" && source === "estate" && uid === 0)
    .flatMap(({ kernel }) => kernel);
  return new Set(
    claims.flatMap((claim) => (claim.kind === "address" && claim.id === "lo-address" ? [claim.address] : [])),
  );
}

/** Reads the records of `nic-agent` about NICs in sandboxes. Throws `NicCniError`. */
function journal(stack: NetStack, at: NodePlaces): Pick<NodeFacts, "sandboxes" | "journalFaults"> {
  const all = nicJournals(at).map((one) => one.list());
  const plans = all.flatMap((one) => one.plans);
  const faults = all.flatMap((one) => one.faults);
  const owners = new Set(stack.links.list().flatMap(({ alias }) => ownerOf(alias)?.containerId ?? []));
  return {
    sandboxes: plans.map((plan) => ({
      containerId: plan.containerId,
      nics: plan.nics.map(({ name }) => name),
      isGone: !owners.has(plan.containerId) && sandboxIsGone(at, plan),
    })),
    journalFaults: faults.map(({ message }) => message),
  };
}

/** The journals of the node's `nic-agent`, by its defaults and estates. */
export function nicJournals(at: Pick<NodePlaces, "root" | "owned">): readonly Journal[] {
  return rootsPaths(at, "nic-agent")
    .filter((path) => path === nicAgentState(dirname(path)).journal)
    .map((folder) => new Journal(folderInRoot(at, folder)));
}

/** Returns true if a sandbox has no network namespace any more. A folder of the node's files that lacks /run or /proc cannot tell. */
function sandboxIsGone(at: NodePlaces, { netns }: SandboxPlan): boolean {
  const [, top = ""] = netns.split("/");
  if (at.root !== "" && (top === "proc" || !existsSync(folderInRoot(at, RUN_ROOT)))) return false;
  return netns !== "" && !existsSync(inRoot(at, netns));
}
