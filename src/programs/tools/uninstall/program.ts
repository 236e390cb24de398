import { systemClock } from "#base/clock";
import {
  type FlagValues,
  integerFlag,
  optionalFlag,
  parsedFlag,
  repeatedFlag,
  stringFlag,
  switchFlag,
} from "#base/config";
import { readFact } from "#base/diagnosis";
import { IpAddress } from "#base/ip";
import { printable } from "#base/text";
import { ForwardPass, type ForwardPlace, openIptables } from "#features/forward-pass";
import { type ClusterRemoval, type NodeRemoval, planCluster, planNode, readCluster } from "#features/uninstall";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import type { KubeApi } from "#kube/client";
import { kubeFlags, openClient } from "../../shared/daemon/index.ts";
import { defineProgram, EXIT, type Program, requirePrivileges } from "../../shared/program/index.ts";
import { applyCluster } from "./apply-cluster.ts";
import { applyNode } from "./apply-node.ts";
import { type Client, readClients, removeClient } from "./clients.ts";
import type { NodePlaces } from "./places.ts";
import { tunnelPorts, uplinkSettings } from "./read-marks.ts";
import { type NodeKernel, readNode } from "./read-node.ts";
import { type GivenFlags, readOwned, scopeText } from "./read-owned.ts";
import { runningPrograms } from "./running-programs.ts";
import { unplugGone } from "./unplug-gone.ts";

/** The bind addresses of docs/guides/tunnel.md. */
const EXAMPLE_BIND_ADDRESSES = ["10.255.255.1", "fd10:255:255::1"].map((text) => IpAddress.parse(text));
const BESIDE = "beside the default, and those of estates";

function numberFlag(name: string, help: string, max = 0xffff_ffff) {
  const { parse } = integerFlag(name, 0, help, { min: 0, max });
  return parsedFlag<number>(name, (text) => parse(text, 0), `${help}, ${BESIDE}`, "N");
}

const flags = {
  dryRun: switchFlag("dry-run", false, "only print what would be removed, and why it is the suite's"),
  json: switchFlag("json", false, "print one JSON object"),
  cluster: switchFlag("cluster", false, "remove the objects of the cluster, instead of what is on this node"),
  keepPools: switchFlag(
    "keep-pools",
    false,
    "with --cluster: keep the API types, and the AddressPools with their blocks",
  ),
  pods: switchFlag("pods", false, "delete the links of pods too: pods that run are cut off"),
  restoreSettings: switchFlag(
    "restore-settings",
    false,
    "set forwarding and accept_ra back to what they were before coild; other programs of the node may need them",
  ),
  root: stringFlag("root", "", "the folder that has the node's files, such as /host in a container", "FOLDER"),
  cniEtcDir: stringFlag("cni-etc-dir", "/etc/cni/net.d", "folder of the CNI configurations", "FOLDER"),
  cniBinDir: stringFlag("cni-bin-dir", "/opt/cni/bin", "folder of the CNI executables", "FOLDER"),
  socket: optionalFlag("socket", `the socket that coild had; ${BESIDE}`, "PATH"),
  podTableId: numberFlag("pod-table-id", "coild's routing table of the routes to pods"),
  podRulePrio: numberFlag("pod-rule-prio", "priority of coild's rule"),
  exportTableId: numberFlag("export-table-id", "coild's routing table of exported blocks"),
  protocolId: numberFlag("protocol-id", "protocol number of coild's routes", 255),
  routerProtocolId: numberFlag("router-protocol-id", "protocol number of coil-router's routes", 255),
  egressPort: numberFlag("egress-port", "UDP port of coild's tunnels in pods", 65_535),
  bindAddress: repeatedFlag(
    "bind-address",
    (text) => IpAddress.parse(text),
    "a bind address of the tunnel; where it is on a link that proxy-agent has not made it is named, and stays; default: those of the examples",
    "IP",
  ),
  tableName: optionalFlag("table-name", "no effect: tables of service-proxy are found by their marks", "NAME"),
  ...kubeFlags,
};

type UninstallValues = FlagValues<typeof flags>;

/** One removal, as text. */
interface Item {
  readonly what: string;
  readonly why: string;
}

/** A plan. */
interface Found<T extends Item> {
  readonly removals: readonly T[];
  readonly refused: readonly string[];
  readonly kept: readonly string[];
  readonly warned?: readonly string[];
  readonly unfinished?: readonly string[];
  readonly unsure?: readonly string[];
}

/** The reader of a plan, and what makes it so. */
interface Work<T extends Item> {
  readonly read: () => Promise<Found<T>>;
  /** The numbers that were looked for, as a sentence; absent: nothing has numbers. */
  readonly scope?: string;
  /** Returns failures, one line each. */
  readonly apply: (
    removals: readonly T[],
    on: { readonly done: (removal: T) => void; readonly wait: (text: string) => void },
  ) => Promise<readonly string[]>;
}

/** `isthmus uninstall`: removes what the suite left on a node, or in a cluster. `listed` has the programs that run on nodes. */
export function uninstallProgram(listed: ReadonlyMap<string, () => Promise<Program>>): Program {
  return defineProgram({
    name: "uninstall",
    summary: "Removes what the suite has left on a node, or with --cluster in the cluster; --dry-run only prints it.",
    flags,
    notes: [
      "On a node: CNI configuration and executables, links, routes, rules, nftables tables, sockets and state folders, in the network namespace and the root in which it runs. It refuses while programs of the suite run there, and while pods have links of the suite (--pods) or NICs of VPCs. Tunnels and closed destinations of Egresses go from pods that run on behind another plugin; these pods are named first, as they then send with their own address. Ports of Open vSwitch that are left of sandboxes that are gone, as after a loss of power, go too: its database must answer.",
      "With --cluster: webhooks, Egresses, workloads, accounts and rights of deploy/ and of the routers of Egresses, then blocks, pools and the API types. coild goes once the routers of Egresses have ended, whose interfaces it removes; blocks and later ones once its pods have ended, which would cut pods off otherwise. Finalizers of the suite are taken off, because its controllers have ended. It refuses while pods have NICs of VPCs, and where Coil itself runs, whose objects have the same names.",
      "Numbers and paths are those of the programs' estates (estate.json in /run/isthmus/PROGRAM and /var/lib/isthmus/PROGRAM), of the flags, and the defaults. An estate is a claim: only what also bears the program's mark goes, and files only below the program's own folders. Estates go last, and stay after a failure.",
      "Objects of other owners stay. A run that was killed is finished by the next one. After the removals it looks again.",
      "Exit code: 0 when nothing is left but what is kept, or with --dry-run when nothing refuses the removal; 1 otherwise, also while pods have addresses and links of coild, and where numbers are not known.",
    ],
    run: async ({ values, signal }) => {
      if (values.cluster) {
        await using api = await openClient("uninstall", values, { clock: systemClock });
        return await carryOut(clusterWork(api, values, signal), values);
      }
      requirePrivileges("change the kernel's network state", ["CAP_NET_ADMIN"]);
      const kernel = openKernel();
      using own = kernel.openNetNs("own");
      using stack = kernel.openStack(own);
      using nft = openNft(own);
      using elements = openNftElements(own);
      const programs = await Promise.all(Array.from(listed.values(), (load) => load()));
      const places = placesOf(values, programs);
      const unplug = (containerId: string): Promise<void> => unplugGone(kernel, places, containerId, signal);
      const ports = tunnelPorts(places.owned);
      const clients = {
        read: () => readClients(kernel, stack, { port: ports[0] ?? 0 }),
        remove: async (client: Client) => {
          for (const port of ports) await removeClient(kernel, client, { port });
        },
      };
      const pass = new ForwardPass({ iptables: openIptables(own), elements });
      return await carryOut(
        nodeWork({ stack, nft, elements }, { unplug, clients, pass }, { ...values, ...places }),
        values,
      );
    },
  });
}

function nodeWork(
  kernel: NodeKernel,
  {
    unplug,
    clients,
    pass,
  }: {
    readonly pass: Pick<ForwardPass, "own" | "sync">;
    readonly unplug: (containerId: string) => Promise<void>;
    readonly clients: { readonly read: () => readonly Client[]; readonly remove: (client: Client) => Promise<void> };
  },
  values: NodePlaces & Parameters<typeof planNode>[1],
): Work<NodeRemoval> {
  return {
    scope: scopeText(values.templates, values.owned),
    read: async () => {
      const found = await readFact(() => pass.own());
      const forward = "fault" in found ? { forwardFault: found.fault } : { forward: found.value.map(chainText) };
      return planNode(readNode(kernel, values, { clients: clients.read(), ...forward }), values);
    },
    apply: (removals, { done }) =>
      applyNode(
        {
          ...{ kernel, unplug, removeClient: clients.remove, running: () => runningPrograms(values) },
          removeForward: () => pass.sync([]),
          uplinkSettings: () => uplinkSettings(values.owned),
        },
        removals,
        done,
      ),
  };
}

/** The flags by the programs that have them. */
function givenFlags(values: UninstallValues): GivenFlags {
  const { podTableId, podRulePrio, exportTableId, protocolId, egressPort, socket } = values;
  return {
    coild: { podTableId, podRulePrio, exportTableId, protocolId, egressPort, socket },
    "coil-router": { protocolId: values.routerProtocolId },
    "proxy-agent": { bindAddress: bindAddressesOf(values).map(String) },
  };
}

function bindAddressesOf({ bindAddress }: UninstallValues): readonly IpAddress[] {
  return bindAddress.length > 0 ? bindAddress : EXAMPLE_BIND_ADDRESSES;
}

function placesOf(values: UninstallValues, programs: readonly Program[]): NodePlaces {
  const { root, cniEtcDir, cniBinDir } = values;
  const { templates, owned } = readOwned(programs, givenFlags(values), { root });
  const claimed = owned.sets.flatMap(({ program, kernel }) =>
    kernel.flatMap((claim) =>
      program === "proxy-agent" && claim.kind === "address" ? (IpAddress.tryParse(claim.address) ?? []) : [],
    ),
  );
  const addresses = [...bindAddressesOf(values), ...claimed].map((address) => [String(address), address] as const);
  return {
    ...{ root, cniEtcDir, cniBinDir, templates, owned },
    bindAddress: [...new Map(addresses).values()],
    nodePrograms: new Set(programs.map(({ name }) => name)),
  };
}

function chainText({ family, variant }: ForwardPlace): string {
  return `${family === 4 ? "ip" : "ip6"}tables-${variant} FORWARD`;
}

function clusterWork(
  api: KubeApi,
  values: Parameters<typeof planCluster>[1],
  signal: AbortSignal,
): Work<ClusterRemoval> {
  return {
    read: async () => planCluster(await readCluster(api, { signal }), values),
    apply: (removals, { done, wait }) =>
      applyCluster({ api, clock: systemClock, onWait: wait }, removals, done, { signal }),
  };
}

/** Plans, prints, removes, and looks again. */
async function carryOut<T extends Item>(
  work: Work<T>,
  { dryRun, json }: { readonly dryRun: boolean; readonly json: boolean },
): Promise<number> {
  const say = (text: string): void => void (json || process.stdout.write(`${printable(text)}\n`));
  const tell = (report: object): void => void (json && process.stdout.write(`${JSON.stringify(report)}\n`));
  const first = await work.read();
  const report = reportOf(work, first);
  for (const line of first.kept) say(`kept: ${line}`);
  for (const line of [...report.warned, ...report.unfinished]) say(`note: ${line}`);
  if (work.scope !== undefined) say(`note: ${work.scope}`);
  if (dryRun) {
    for (const removal of first.removals) say(`would ${textOf(removal)}`);
    for (const line of first.refused) say(`refused: ${line}`);
    say(first.removals.length === 0 ? endText(report) : `${first.removals.length} removals; nothing was changed`);
    tell({ ...report, ok: first.refused.length === 0, dryRun });
    return first.refused.length === 0 ? EXIT.ok : EXIT.failed;
  }
  if (first.refused.length > 0) {
    for (const line of first.refused) say(`refused: ${line}`);
    say("nothing was removed");
    tell({ ...report, ok: false, dryRun });
    return EXIT.failed;
  }
  const failures = await work.apply(first.removals, {
    done: (removal) => say(`done: ${textOf(removal)}`),
    wait: say,
  });
  const last = await work.read();
  const left = last.removals.map(({ what }) => what);
  // Traces go with the removals, and with them the knowledge that numbers are unknown.
  const unfinished = [...new Set([...(first.unsure ?? []), ...(last.unfinished ?? [])])];
  for (const line of failures) say(`failed: ${line}`);
  for (const what of left) say(`still to do: ${what}`);
  const isDone = failures.length === 0 && left.length === 0;
  const ok = isDone && unfinished.length === 0;
  for (const line of unfinished) say(`left: ${line}`);
  say(isDone ? endText({ kept: first.kept, unfinished }) : "some objects are left; run it again");
  tell({ ...report, unfinished, ok, dryRun, failures, left });
  return ok ? EXIT.ok : EXIT.failed;
}

function textOf({ what, why }: Item): string {
  return `${what}  (${why})`;
}

/** Returns the findings for the output. Pure. */
function reportOf<T extends Item>({ scope }: Work<T>, { removals, refused, kept, ...more }: Found<T>) {
  const { warned = [], unfinished = [], unsure = [] } = more;
  const items = removals.map(({ what, why }) => ({ what, why }));
  return {
    ...{ removals: items, refused, kept, warned, unfinished: [...unsure, ...unfinished] },
    ...(scope === undefined ? {} : { scope }),
  };
}

/** Pure: the last line after all removals. */
export function endText({
  kept,
  unfinished,
}: {
  readonly kept: readonly string[];
  readonly unfinished: readonly string[];
}): string {
  if (unfinished.length > 0) return "the removals are made, and what is named above is left";
  return kept.length > 0 ? "nothing else of the suite is left than what is kept" : "nothing of the suite is left";
}
