import { systemClock } from "#base/clock";
import { integerFlag, repeatedFlag, stringFlag, switchFlag } from "#base/config";
import { readFact } from "#base/diagnosis";
import { IpAddress } from "#base/ip";
import { printable } from "#base/text";
import { ForwardPass, type ForwardPlace, openIptables } from "#features/forward-pass";
import { type ClusterRemoval, type NodeRemoval, planCluster, planNode, readCluster } from "#features/uninstall";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import type { KubeApi } from "#kube/client";
import { kubeFlags, openClient } from "./daemon/index.ts";
import { defineProgram, EXIT, type Program, requirePrivileges } from "./program/index.ts";
import { applyCluster } from "./uninstall/apply-cluster.ts";
import { applyNode } from "./uninstall/apply-node.ts";
import { type Client, readClients, removeClient } from "./uninstall/clients.ts";
import { type NodeKernel, readNode, runningPrograms } from "./uninstall/read-node.ts";
import { unplugGone } from "./uninstall/unplug-gone.ts";

/** The bind addresses of docs/guides/tunnel.md. */
const EXAMPLE_BIND_ADDRESSES = ["10.255.255.1", "fd10:255:255::1"].map((text) => IpAddress.parse(text));
const number = { min: 0, max: 0xffff_ffff };

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
  socket: stringFlag("socket", "/run/coild.sock", "the socket that coild had", "PATH"),
  podTableId: integerFlag("pod-table-id", 116, "coild's routing table of the routes to pods", number),
  podRulePrio: integerFlag("pod-rule-prio", 2000, "priority of coild's rule", number),
  exportTableId: integerFlag("export-table-id", 119, "coild's routing table of exported blocks", number),
  protocolId: integerFlag("protocol-id", 30, "protocol number of coild's routes", { min: 0, max: 255 }),
  routerProtocolId: integerFlag("router-protocol-id", 31, "protocol number of coil-router's routes", {
    min: 0,
    max: 255,
  }),
  egressPort: integerFlag("egress-port", 5555, "UDP port of coild's tunnels in pods", { min: 1, max: 65_535 }),
  bindAddress: repeatedFlag(
    "bind-address",
    (text) => IpAddress.parse(text),
    "a bind address of the tunnel; where it is on a link that proxy-agent has not made it is named, and stays; default: those of the examples",
    "IP",
  ),
  tableName: stringFlag("table-name", "kube-proxy", "name of service-proxy's tables", "NAME"),
  ...kubeFlags,
};

/** One removal, as text. */
interface Item {
  readonly what: string;
  readonly why: string;
}

/** A plan, and what makes it so. */
interface Work<T extends Item> {
  readonly read: () => Promise<{
    readonly removals: readonly T[];
    readonly refused: readonly string[];
    readonly kept: readonly string[];
    readonly warned?: readonly string[];
    readonly unfinished?: readonly string[];
  }>;
  /** The numbers that were looked for, as a sentence; absent: nothing has numbers. */
  readonly scope?: string;
  /** Returns failures, one line each. */
  readonly apply: (
    removals: readonly T[],
    on: { readonly done: (removal: T) => void; readonly wait: (text: string) => void },
  ) => Promise<readonly string[]>;
}

/** `isthmus uninstall`: removes what the suite left on a node, or in a cluster. `nodePrograms` are the names of the programs that run on nodes. */
export function uninstallProgram(nodePrograms: ReadonlySet<string>): Program {
  return defineProgram({
    name: "uninstall",
    summary: "Removes what the suite has left on a node, or with --cluster in the cluster; --dry-run only prints it.",
    flags,
    notes: [
      "On a node: CNI configuration and executables, links, routes, rules, nftables tables, sockets and state folders, in the network namespace and the root in which it runs. It refuses while programs of the suite run there, and while pods have links of the suite (--pods) or NICs of VPCs. Tunnels and closed destinations of Egresses go from pods that run on behind another plugin; these pods are named first, as they then send with their own address. Ports of Open vSwitch that are left of sandboxes that are gone, as after a loss of power, go too: its database must answer.",
      "With --cluster: webhooks, Egresses, workloads, accounts and rights of deploy/ and of the routers of Egresses, then blocks, pools and the API types. coild goes once the routers of Egresses have ended, whose interfaces it removes; blocks and later ones once its pods have ended, which would cut pods off otherwise. Finalizers of the suite are taken off, because its controllers have ended. It refuses while pods have NICs of VPCs, and where Coil itself runs, whose objects have the same names.",
      "Objects of other owners stay. A run that was killed is finished by the next one. After the removals it looks again.",
      "Exit code: 0 when nothing is left but what is kept, or with --dry-run when nothing refuses the removal; 1 otherwise, also while pods have addresses and links of coild.",
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
      const bindAddress = values.bindAddress.length > 0 ? values.bindAddress : EXAMPLE_BIND_ADDRESSES;
      const places = { ...values, bindAddress, nodePrograms };
      const unplug = (containerId: string): Promise<void> => unplugGone(kernel, places, containerId, signal);
      const tunnels = { port: values.egressPort };
      const clients = {
        read: () => readClients(kernel, stack, tunnels),
        remove: (client: Client) => removeClient(kernel, client, tunnels),
      };
      const pass = new ForwardPass({ iptables: openIptables(own), elements });
      return await carryOut(nodeWork({ stack, nft, elements }, { unplug, clients, pass }, places), values);
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
  values: Parameters<typeof scopeText>[0] & Parameters<typeof planNode>[1],
): Work<NodeRemoval> {
  return {
    scope: scopeText(values),
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
        },
        removals,
        done,
      ),
  };
}

/** Pure: an installation with other numbers leaves nothing that these find. */
function scopeText(at: Parameters<typeof readNode>[1] & { readonly egressPort: number }): string {
  return `looked for routing tables ${at.podTableId} and ${at.exportTableId}, rule priority ${at.podRulePrio}, protocols ${at.protocolId} and ${at.routerProtocolId}, UDP port ${at.egressPort}: give the flags of programs that had other numbers (--help)`;
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
  const { removals, refused, kept, warned = [], unfinished = [] } = await work.read();
  const textOf = ({ what, why }: Item): string => `${what}  (${why})`;
  const { scope } = work;
  const items = removals.map(({ what, why }) => ({ what, why }));
  const report = { removals: items, refused, kept, warned, unfinished, ...(scope === undefined ? {} : { scope }) };
  const tell = (more: object): void =>
    void (json && process.stdout.write(`${JSON.stringify({ ...report, ...more })}\n`));
  for (const line of kept) say(`kept: ${line}`);
  for (const line of warned) say(`note: ${line}`);
  for (const line of unfinished) say(`note: ${line}`);
  if (scope !== undefined) say(`note: ${scope}`);
  if (dryRun) {
    for (const removal of removals) say(`would ${textOf(removal)}`);
    for (const line of refused) say(`refused: ${line}`);
    say(removals.length === 0 ? endText(report) : `${removals.length} removals; nothing was changed`);
    tell({ ok: refused.length === 0, dryRun });
    return refused.length === 0 ? EXIT.ok : EXIT.failed;
  }
  if (refused.length > 0) {
    for (const line of refused) say(`refused: ${line}`);
    say("nothing was removed");
    tell({ ok: false, dryRun });
    return EXIT.failed;
  }
  const failures = await work.apply(removals, {
    done: (removal) => say(`done: ${textOf(removal)}`),
    wait: say,
  });
  const left = (await work.read()).removals.map(({ what }) => what);
  for (const line of failures) say(`failed: ${line}`);
  for (const what of left) say(`still to do: ${what}`);
  const isDone = failures.length === 0 && left.length === 0;
  const ok = isDone && unfinished.length === 0;
  for (const line of isDone ? unfinished : []) say(`left: ${line}`);
  say(isDone ? endText(report) : "some objects are left; run it again");
  tell({ ok, dryRun, failures, left });
  return ok ? EXIT.ok : EXIT.failed;
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
