import { existsSync, lstatSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import type { IpAddress } from "#base/ip";
import { DEFAULT_SETTINGS } from "#base/uplink-model";
import { Journal, ownerOf, type SandboxPlan } from "#features/nic-cni";
import { parseAlias } from "#features/pod-network";
import { isOwnTable, REPLACEMENT_SUFFIX } from "#features/service-proxy";
import { guardTables } from "#features/source-guard";
import { BIND_ALIAS } from "#features/tunnel";
import { type FileRole, type LinkRole, type NodeFacts, type OwnFile, otherNumbers } from "#features/uninstall";
import { describeFlush } from "#features/uplink-routing";
import { CAP } from "#kernel/capabilities";
import { isKernelError } from "#kernel/errors";
import { tryFileLock } from "#kernel/lock";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import { familiesOf } from "#kernel/rule";
import { handoverPath, isLauncher, STANDALONE_SUFFIX } from "#wire/cni-handover";
import { servedPath } from "../cni-plugin/index.ts";
import { formerSettingsPath, readFormerSettings } from "../former-settings/index.ts";
import { optional } from "../suite/index.ts";

/** The node's kernel. */
export interface NodeKernel {
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly elements: NftElements;
}

/** The marks and paths of an installation. */
export interface NodePlaces {
  /** The folder that has the node's files; empty for the root. */
  readonly root: string;
  readonly cniEtcDir: string;
  readonly cniBinDir: string;
  readonly socket: string;
  readonly podTableId: number;
  readonly podRulePrio: number;
  readonly exportTableId: number;
  readonly protocolId: number;
  readonly routerProtocolId: number;
  readonly tableName: string;
  /** Bind addresses of the tunnel. */
  readonly bindAddress: readonly IpAddress[];
  /** Names of the programs that run on nodes. */
  readonly nodePrograms: ReadonlySet<string>;
}

const NIC_ALIAS = "isthmus-nic:";
const TABLE_MAIN = 254;
const SET_ASIDE = ".coil-disabled";
/** Types of plugins that a configuration of ours names. */
const PLUGINS = new Set(["coil", "vpc-neutron", "vpc-alcor"]);
const VPC_EXECUTABLES = ["vpc-neutron", "vpc-alcor"].flatMap((name) => [name, `${name}${STANDALONE_SUFFIX}`]);
/** A launcher is much smaller; a larger executable is not read to find out. */
const MAX_LAUNCHER_BYTES = 65_536;
/** As many links in a path as the kernel follows. */
const MAX_LINKS = 40;
/** The folder of `nic-agent`'s journal. */
const NIC_JOURNAL = "/var/lib/isthmus/cni";
const VPC_SOCKET = "/run/isthmus/vpc.sock";
/** The folder of sockets. */
const RUN = "/run/isthmus";
const RUN_ROOT = "/run";
/** Files and folders at fixed places. */
const FIXED: readonly (readonly [path: string, role: FileRole])[] = [
  ["/run/uplink-proxy", "state"],
  // Its counters, at the place of EVE's.
  ["/run/mgmtproxy", "state"],
  ["/run/mgmtproxy-containerd-env", "record"],
  ["/var/lib/isthmus", "state"],
  ["/var/lib/uplink-proxy", "state"],
];

/** Reads what a node has of the suite. `clients` are those of its pods, `forward` the chains of iptables with our rules. Changes nothing. Throws `KernelError`, `NftError`, `NicCniError`, and errors of the file system. */
export function readNode(
  kernel: NodeKernel,
  places: NodePlaces,
  { clients = [], forward = [], forwardFault }: Partial<Pick<NodeFacts, "clients" | "forward" | "forwardFault">> = {},
): NodeFacts {
  const { stack } = kernel;
  return {
    running: [...runningPrograms(places), ...lockHolders(places)],
    links: stack.links.list().flatMap(({ index, name, alias = "" }) => {
      const role = roleOf(alias);
      return role === undefined ? [] : [{ index, name, alias, role }];
    }),
    ...journal(stack, places),
    clients,
    ...routing(stack, places),
    otherNumbers: otherNumbersOf(stack, places),
    forward,
    forwardFault,
    guard: guardTables(kernel.elements),
    services: services(kernel, places),
    uplinks: describeFlush(kernel, DEFAULT_SETTINGS),
    files: files(places),
    bindAddresses: bindAddresses(stack, places),
    settings: changedSettings(stack, readFormerSettings(inRoot(places, formerSettingsPath(places.socket)))),
  };
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

/**
 * The path of a node's file. Below a root the links of folders are followed as the node follows them: an absolute link begins at the root again.
 * The file itself may be a link.
 */
export function inRoot({ root }: Pick<NodePlaces, "root">, path: string): string {
  if (root === "") return path;
  let left = path.split("/").filter((part) => part !== "");
  let folder = "/";
  for (let links = 0; left.length > 1; ) {
    const [part = "", ...rest] = left;
    const next = join(folder, part);
    const target = linkTarget(join(root, next));
    if (target === undefined || links >= MAX_LINKS) [folder, left] = [next, rest];
    else {
      links += 1;
      if (target.startsWith("/")) folder = "/";
      left = [...target.split("/").filter((one) => one !== ""), ...rest];
    }
  }
  return join(root, folder, ...left);
}

function linkTarget(path: string): string | undefined {
  return optional(() => readlinkSync(path));
}

/** The path of a folder of the node, whose own link is followed too. */
function folderInRoot(at: Pick<NodePlaces, "root">, path: string): string {
  return dirname(inRoot(at, `${path}/file`));
}

function roleOf(alias: string): LinkRole | undefined {
  if (alias === BIND_ALIAS) return "bind";
  if (alias.startsWith(NIC_ALIAS)) return "nic";
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

/** The bind addresses of the tunnel on links that `proxy-agent` has not made. */
function bindAddresses(stack: NetStack, { bindAddress }: NodePlaces): NodeFacts["bindAddresses"] {
  const links = new Map(stack.links.list().map((link) => [link.index, link]));
  return stack.addresses.list().flatMap(({ linkIndex, address, prefixLength }) => {
    const link = links.get(linkIndex);
    if (link === undefined || link.alias === BIND_ALIAS || !bindAddress.some((one) => one.equals(address))) return [];
    return [`${address}/${prefixLength} on ${link.name}`];
  });
}

/** What `nic-agent` has noted of NICs in sandboxes. Throws `NicCniError`. */
function journal(stack: NetStack, at: NodePlaces): Pick<NodeFacts, "sandboxes" | "journalFaults"> {
  const { plans, faults } = nicJournal(at).list();
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

/** The journal of the node's `nic-agent`. */
export function nicJournal(at: Pick<NodePlaces, "root">): Journal {
  return new Journal(folderInRoot(at, NIC_JOURNAL));
}

/** Whether a sandbox has no network namespace any more. A folder of the node's files that lacks /run or /proc cannot tell. */
function sandboxIsGone(at: NodePlaces, { netns }: SandboxPlan): boolean {
  const [, top = ""] = netns.split("/");
  if (at.root !== "" && (top === "proc" || !existsSync(folderInRoot(at, RUN_ROOT)))) return false;
  return netns !== "" && !existsSync(inRoot(at, netns));
}

function routing(stack: NetStack, at: NodePlaces): Pick<NodeFacts, "rules" | "routes"> {
  const families = familiesOf(stack.rules);
  const rules = families.flatMap((family) =>
    stack.rules
      .list(family)
      .filter(
        ({ priority, table, from, to }) => priority === at.podRulePrio && table === at.podTableId && !from && !to,
      ),
  );
  const routesOf = (table: number, protocol: number, program: "coild" | "coil-router"): NodeFacts["routes"] =>
    families.flatMap((family) => stack.routes.list({ family, table, protocol }).map((route) => ({ route, program })));
  return {
    rules,
    routes: [
      ...routesOf(at.podTableId, at.protocolId, "coild"),
      ...routesOf(at.exportTableId, at.protocolId, "coild"),
      ...routesOf(TABLE_MAIN, at.routerProtocolId, "coil-router"),
    ],
  };
}

function otherNumbersOf(stack: NetStack, at: NodePlaces): string[] {
  const families = familiesOf(stack.rules);
  const podLinks = stack.links.list().filter(({ alias = "" }) => roleOf(alias) === "pod");
  return otherNumbers(
    {
      rules: families.flatMap((family) => stack.rules.list(family)),
      routes: families.flatMap((family) => stack.routes.list({ family })),
      podLinks: new Set(podLinks.map(({ index }) => index)),
    },
    at,
  );
}

/** Tables of `service-proxy` by its marks, whatever their name is. */
function services(
  { nft, elements }: Pick<NodeKernel, "nft" | "elements">,
  { tableName }: NodePlaces,
): NodeFacts["services"] {
  return ([4, 6] as const).flatMap((family) => {
    const at = family === 4 ? "ip" : "ip6";
    const listed = nft
      .listTables(at)
      .map(({ name }) => (name.endsWith(REPLACEMENT_SUFFIX) ? name.slice(0, -REPLACEMENT_SUFFIX.length) : name));
    return [...new Set([tableName, ...listed])].flatMap((table) => {
      const own = [table, `${table}${REPLACEMENT_SUFFIX}`].some((name) =>
        isOwnTable(elements.names({ family: at, name })),
      );
      return own ? [{ family, table }] : [];
    });
  });
}

/** The files and folders of the suite that are there. Throws errors of the file system. */
export function files(
  at: Pick<NodePlaces, "root" | "cniEtcDir" | "cniBinDir" | "socket" | "nodePrograms">,
): readonly OwnFile[] {
  const { cniEtcDir, cniBinDir, socket } = at;
  const folder = folderInRoot(at, cniEtcDir);
  const configurations = namesIn(folder).flatMap((name): readonly OwnFile[] => {
    const path = join(folder, name);
    // With another name the installer of before may have put an own one aside.
    if (name.endsWith(SET_ASIDE)) return [{ path, role: namesOurPlugin(path) ? "configuration" : "set-aside" }];
    return /\.conf(list)?$/.test(name) && namesOurPlugin(path) ? [{ path, role: "configuration" }] : [];
  });
  // A configuration of that name that is there by now is not replaced.
  const restored = configurations.filter(
    ({ path, role }) => role !== "set-aside" || !existsSync(path.slice(0, -SET_ASIDE.length)),
  );
  const handover = handoverPath(socket);
  const known: readonly (readonly [path: string, role: FileRole])[] = [
    ...["coil", `coil${STANDALONE_SUFFIX}`, ...VPC_EXECUTABLES].map(
      (name) => [join(cniBinDir, name), "executable"] as const,
    ),
    [socket, "socket"],
    ...(handover === undefined ? [] : [[handover, "socket"] as const]),
    [servedPath(socket), "record"],
    [lockPath(socket), "lock"],
    [VPC_SOCKET, "socket"],
    [servedPath(VPC_SOCKET), "record"],
    ...runFolders(folderInRoot(at, RUN), at.nodePrograms),
    ...FIXED,
    // The record of former settings is the last one: a run that is killed before still has it.
    [formerSettingsPath(socket), "record"],
  ];
  const there = known
    .map(([path, role]): OwnFile => ({ path: inRoot(at, path), role }))
    .filter(({ path }) => isThere(path));
  const coil = inRoot(at, join(cniBinDir, "coil"));
  return [
    ...restored,
    ...there.map(
      (file): OwnFile => (file.path === coil && !isOurCoil(coil) ? { ...file, role: "foreign-executable" } : file),
    ),
  ];
}

/** The folder of sockets, if it has no socket but that of `nic-agent`, as labs have theirs there too; else those of the programs in it, with the API servers that they know. */
function runFolders(
  folder: string,
  programs: ReadonlySet<string>,
): readonly (readonly [path: string, role: FileRole])[] {
  const names = namesIn(folder);
  const isOwn = (name: string): boolean => name.startsWith("vpc.sock") || name === "sockets" || programs.has(name);
  if (names.every(isOwn)) return [[RUN, "state"]];
  return names.filter((name) => programs.has(name)).map((name) => [join(RUN, name), "state"] as const);
}

/** Whether there is a file, or a link that leads nowhere. */
function isThere(path: string): boolean {
  return optional(() => lstatSync(path)) !== undefined;
}

/** Whether a configuration names a plugin of ours; a file that is no configuration, or that cannot be read, does not. */
function namesOurPlugin(path: string): boolean {
  const text = optional(() => readFileSync(path, "utf8"));
  if (text === undefined) return false;
  try {
    const { type, plugins = [] } = JSON.parse(text) as {
      readonly type?: unknown;
      readonly plugins?: readonly { readonly type?: unknown }[];
    };
    return [type, ...plugins.map((plugin) => plugin.type)].some((one) => PLUGINS.has(String(one)));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof TypeError) return false;
    throw error;
  }
}

/** `coil` of Coil has the same name: ours is the launcher, or stands beside the executable that it runs. */
function isOurCoil(path: string): boolean {
  const stats = optional(() => statSync(path));
  return stats?.isFile() === true && stats.size <= MAX_LAUNCHER_BYTES && isLauncher(readFileSync(path));
}

function lockPath(socket: string): string {
  return join(dirname(socket), "coild.lock");
}

/** Programs that another process namespace may hide hold their locks. */
function lockHolders(at: NodePlaces): readonly string[] {
  const isHeld = (path: string): boolean => {
    if (!existsSync(path)) return false;
    const lock = tryFileLock(path);
    lock?.[Symbol.dispose]();
    return lock === undefined;
  };
  return [
    ["coild", lockPath(at.socket)],
    ["nic-agent", "/var/lib/isthmus/nic-agent.lock"],
  ].flatMap(([name = "", path = ""]) => (isHeld(inRoot(at, path)) ? [`${name} (it holds ${path})`] : []));
}

/**
 * Programs of the suite for nodes that run in this network namespace and may change it, as `coild (process 12)`. Of others' processes the command line and the
 * environment say what their users like.
 */
export function runningPrograms({ nodePrograms }: Pick<NodePlaces, "nodePrograms">): readonly string[] {
  const own = readlinkSync("/proc/self/ns/net");
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(name) !== process.pid)
    .flatMap((pid) => {
      try {
        const name = programOf(
          readFileSync(`/proc/${pid}/cmdline`, "utf8"),
          readFileSync(`/proc/${pid}/environ`, "utf8"),
          nodePrograms,
        );
        const isOurs =
          name !== undefined && readlinkSync(`/proc/${pid}/ns/net`) === own && canChangeNode(processOwner(pid));
        return isOurs ? [`${name} (process ${pid})`] : [];
      } catch (error) {
        // It has ended meanwhile, or is not ours to look at.
        if (error instanceof Error && "syscall" in error) return [];
        throw error;
      }
    });
}

/** Who a process is, as the kernel says it. */
export interface ProcessOwner {
  /** /proc/PID/status. */
  readonly status: string;
  /** The target of /proc/PID/exe. */
  readonly executable: string;
  /** It is in the user namespace of this process: in one of its own it has every capability, and none here. */
  readonly isHere: boolean;
}

function processOwner(pid: string): ProcessOwner {
  return {
    status: readFileSync(`/proc/${pid}/status`, "utf8"),
    executable: readlinkSync(`/proc/${pid}/exe`),
    isHere: readlinkSync(`/proc/${pid}/ns/user`) === readlinkSync("/proc/self/ns/user"),
  };
}

/** Pure: whether a process is Node, and root's or of a user to whom root has given CAP_NET_ADMIN. */
export function canChangeNode({ status, executable, isHere }: ProcessOwner): boolean {
  if (!isHere || !/^node/.test(basename(executable))) return false;
  const uid = /^Uid:\s+\d+\s+(\d+)/m.exec(status)?.[1];
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  return uid === "0" || ((effective >> BigInt(CAP.NET_ADMIN)) & 1n) === 1n;
}

/** Pure: the program for nodes that a process runs; `undefined` for any other process. */
export function programOf(
  commandLine: string,
  environment: string,
  nodePrograms: ReadonlySet<string>,
): string | undefined {
  const words = commandLine.split("\0");
  const at = words.findIndex((word) => /\/(isthmus\.mjs|programs\/start\.ts)$/.test(word));
  if (at < 0) return undefined;
  const calledAs = /(?:^|\0)ISTHMUS_CALLED_AS=([^\0]*)/.exec(environment)?.[1] ?? "";
  return [calledAs, words[at + 1] ?? ""].find((name) => nodePrograms.has(name));
}

function namesIn(folder: string): readonly string[] {
  return existsSync(folder) ? readdirSync(folder).toSorted() : [];
}
