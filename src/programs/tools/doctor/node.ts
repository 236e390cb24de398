import { existsSync, readFileSync, readlinkSync, statfsSync } from "node:fs";
import { dirname } from "node:path";
import type { Clock } from "#base/clock";
import { type Fact, readFact } from "#base/diagnosis";
import { ExpectedError } from "#base/errors";
import { inspectNicAgent, inspectNodes } from "#features/cni";
import { busiestClients, crowdedText, listCrowded, ROUTER_TABLE, tunnelSources } from "#features/egress";
import { POD_DEFAULTS } from "#features/pod-network";
import { leftovers, serviceRanges } from "#features/service-proxy";
import { guardTables, readRefusals } from "#features/source-guard";
import {
  type CniFile,
  type CrowdedRouter,
  DAEMONS,
  endpointsOf,
  flagOf,
  hasPodNetwork,
  isOurReadiness,
  type NodeFacts,
  type NodeMarks,
} from "#features/suite-report";
import { openConntrack } from "#kernel/conntrack";
import { isKernelError } from "#kernel/errors";
import { type NetStack, openKernel } from "#kernel/net";
import { openNftElements } from "#kernel/nft-elements";
import { familiesOf } from "#kernel/rule";
import { openClient } from "../../shared/daemon/index.ts";
import { ownFolders, STATE_FOLDER } from "../../shared/estate/index.ts";
import { readForwardOf, readInputOf } from "../../shared/filters/index.ts";
import { readMarks } from "../../shared/marks/index.ts";
import type { Program } from "../../shared/program/index.ts";
import {
  askHere,
  linksOfRoutes,
  listenerOf,
  optional,
  type SuiteProcess,
  suiteProcesses,
  uplinksOf,
  variableOf,
  within,
} from "../../shared/suite/index.ts";
import { executablesOf, readCniFiles } from "./cni.ts";
import { isMounted, isReadOnly } from "./mounts.ts";
import { readNetworkd } from "./networkd.ts";

/** The paths of a node. */
export interface NodePlaces {
  readonly cniConfDir: string;
  readonly cniBinDir: string;
  readonly kubeconfig: string | undefined;
}

/** The time in which a daemon must answer, in milliseconds. */
const ANSWER_MS = 5000;
/** The state folder of nic-agent. */
const NIC_STATE = STATE_FOLDER;
const EGRESS_PORT = 5555;

/** Certificates of the tunnel's programs, by their flags. */
const CERTIFICATE_FLAGS: Readonly<Record<string, readonly string[]>> = {
  "proxy-agent": ["agent-cert", "ca-cert"],
  "proxy-server": ["server-cert", "server-ca-cert", "cluster-cert", "cluster-ca-cert"],
};

/** Reads what a diagnosis needs of this machine. `lacking` are features of the kernel. Rejects only with the signal's reason and with bugs. */
export async function readNode(
  places: NodePlaces,
  {
    lacking,
    listed,
    clock,
    signal,
  }: {
    readonly lacking: readonly string[];
    /** The programs of nodes. */
    readonly listed: ReadonlyMap<string, () => Promise<Program>>;
    readonly clock: Clock;
    readonly signal: AbortSignal;
  },
): Promise<NodeFacts> {
  const processes = suiteProcesses();
  const notMounted = [places.cniConfDir, places.cniBinDir].filter(
    (path) => isContainer() && !isMounted(mounts(), path),
  );
  const cni = readCniFiles(places.cniConfDir);
  const files = "value" in cni ? cni.value : [];
  const isHere = processes.length > 0 || hasPodNetwork({ processes, cni });
  const wanted = hasPodNetwork({ processes, cni }) ? daemonSockets(files, processes) : [];
  const [sockets, ports, offset] = await Promise.all([
    Promise.all(wanted.map(async (one) => ({ ...one, ...(await socketFault(one, signal)) }))),
    portsOf(
      processes,
      wanted.map(({ program }) => program),
      signal,
    ),
    isHere || places.kubeconfig !== undefined ? clockOffset(places, { clock, signal }) : undefined,
  ]);
  const folders = [
    ...new Set([
      ...wanted.map(({ path }) => dirname(path)),
      ...stateFolders(processes),
      ...(isHere && !notMounted.includes(places.cniConfDir) ? [places.cniConfDir] : []),
    ]),
  ];
  const kernel = openKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  return {
    now: clock.now(),
    processes,
    cniDir: places.cniConfDir,
    cni,
    notMounted,
    cniBinDir: places.cniBinDir,
    executables: notMounted.includes(places.cniBinDir) ? [] : executablesOf(files, places.cniBinDir),
    sockets,
    forwarding: forwardingOf(stack),
    rules: familiesOf(stack.rules).flatMap((family) => stack.rules.list(family)),
    podDefaults: POD_DEFAULTS,
    networkd: readNetworkd(),
    forward: await readForwardOf(processes, { stack, netns }, { signal }),
    input: await readInputOf(processes, { stack, netns }, { signal }),
    rivals: rivalsOf(processes, stack, netns),
    serviceRanges: await serviceRangesOf(processes, stack, netns),
    routesLocalnet: stack.sysctl.get("net.ipv4.conf.all.route_localnet") === "1",
    guard: await guardOf(processes, stack, netns),
    conntrack: conntrackOf(),
    translated: await translatedOf(processes, netns, signal),
    sourcePorts: await sourcePortsOf(kernel, signal),
    uplinks: uplinksOf(stack),
    podLinks: podLinksOf(stack, processes),
    ports,
    marks: await nodeMarks(listed, stack),
    folders: folders.flatMap(folderOf),
    lacking,
    certificates: certificatesOf(processes),
    clock: offset,
  };
}

/** The marks of the programs that have an estate. The others are not loaded. */
async function nodeMarks(
  listed: ReadonlyMap<string, () => Promise<Program>>,
  stack: NetStack,
): Promise<NodeMarks | undefined> {
  const withEstate = new Map([...listed].filter(([name]) => ownFolders(name).some((folder) => existsSync(folder))));
  if (withEstate.size === 0) return undefined;
  const { facts, refused } = await readMarks(withEstate, stack, { running: new Set() });
  return facts.inForce.length + refused.length === 0 ? undefined : { ...facts, refused };
}

/** The sockets that the configuration names, else those of the daemons that run. */
function daemonSockets(files: readonly CniFile[], processes: readonly SuiteProcess[]) {
  const named = files.flatMap(({ plugins }) =>
    plugins.flatMap(({ type, socket }) => {
      const daemon = DAEMONS[type];
      return daemon === undefined ? [] : [{ program: daemon.program, path: socket ?? daemon.socket }];
    }),
  );
  const running = processes.flatMap(({ program, flags }) => {
    const daemon = Object.values(DAEMONS).find((one) => one.program === program);
    const isNamed = named.some((one) => one.program === program);
    return daemon === undefined || isNamed ? [] : [{ program, path: flagOf(flags, "socket") ?? daemon.socket }];
  });
  return [...new Map([...named, ...running].map((one) => [`${one.program} ${one.path}`, one])).values()];
}

async function socketFault(
  { program, path }: { readonly program: string; readonly path: string },
  signal: AbortSignal,
) {
  const answer = await readFact(() =>
    within(ANSWER_MS, signal, async (limited) => {
      if (program === "coild") await inspectNodes([path], { signal: limited });
      else await inspectNicAgent(path, { signal: limited });
    }),
  );
  return "fault" in answer ? { fault: answer.fault } : {};
}

/** The health ports of programs that run, and of daemons that should: at a port of those nobody else may listen. */
async function portsOf(processes: readonly SuiteProcess[], daemons: readonly string[], signal: AbortSignal) {
  const absent = [...new Set(daemons)].filter((program) => !processes.some((one) => one.program === program));
  const commands = [...processes, ...absent.map((program) => ({ program, flags: [], pid: undefined }))];
  return Promise.all(
    commands.flatMap((command) => {
      const { program, pid } = command;
      const { health } = endpointsOf(command);
      if (health === undefined) return [];
      return [
        (async () => {
          const { port } = health;
          const owner = listenerOf(port);
          const isOwn = owner === undefined || owner.pid === pid || processes.some((one) => one.pid === owner.pid);
          if (isOwn && owner?.pid !== undefined) return { program, port };
          if (owner === undefined) return { program, port };
          const who =
            owner.pid === undefined ? "a process that is not seen from here" : `process ${owner.pid} (${owner.name})`;
          const answer = await readFact(() => askHere(health, "/readyz?verbose", { signal }));
          // A program in a container of another process namespace is known by its answer.
          if (owner.pid === undefined && "value" in answer && isOurReadiness(answer.value.text))
            return { program, port };
          return { program, port, fault: `${who} listens at it, and not ${program}` };
        })(),
      ];
    }),
  );
}

async function clockOffset(
  { kubeconfig }: NodePlaces,
  { clock, signal }: { readonly clock: Clock; readonly signal: AbortSignal },
): Promise<Fact<number>> {
  return readFact(async () => {
    await using api = await openClient("doctor", { kubeconfig }, { clock });
    const before = clock.now();
    const { dateMs } = await api.fetch("/version", { signal, timeoutMs: ANSWER_MS, maxBytes: 65_536 });
    if (dateMs === undefined) throw new ClockError("no-date", "the API server does not tell its time");
    // The header has whole seconds: on average the time is half a second later.
    return (before + clock.now()) / 2 - (dateMs + 500);
  });
}

/** The server's time is not known. */
class ClockError extends ExpectedError<"no-date"> {
  override readonly name = "ClockError";
}

function forwardingOf({ sysctl }: NetStack): NodeFacts["forwarding"] {
  const isOn = (key: string): boolean | undefined => {
    const text = optional(() => readFileSync(`/proc/sys/${key}`, "utf8"));
    return text === undefined ? undefined : text.trim() !== "0";
  };
  // A machine without IPv6 has no such folder; one whose IPv6 is off forwards none of it.
  const isDisabled = isOn("net/ipv6/conf/all/disable_ipv6") === true;
  const ipv6 = isDisabled ? undefined : isOn("net/ipv6/conf/all/forwarding");
  return { ipv4: sysctl.get("net.ipv4.ip_forward") !== "0", ipv6 };
}

function rivalsOf(
  processes: readonly SuiteProcess[],
  stack: NetStack,
  netns: Parameters<typeof openNftElements>[0],
): readonly string[] {
  const proxy = processes.find(({ program }) => program === "service-proxy");
  if (proxy === undefined) return [];
  using elements = openNftElements(netns);
  return leftovers({ elements, links: stack.links }, flagOf(proxy.flags, "table-name") ?? "kube-proxy");
}

/** The ranges of Services that the proxy's tables have. A program of the node needs a route before any rule is asked. */
async function serviceRangesOf(
  processes: readonly SuiteProcess[],
  stack: NetStack,
  netns: Parameters<typeof openNftElements>[0],
): Promise<NodeFacts["serviceRanges"]> {
  const proxy = processes.find(({ program }) => program === "service-proxy");
  if (proxy === undefined) return { value: [] };
  return readFact(async () => {
    using elements = openNftElements(netns);
    const ranges = serviceRanges(elements, flagOf(proxy.flags, "table-name") ?? "kube-proxy");
    return ranges.map((range) => {
      try {
        stack.routes.lookup({ destination: range.hostBits > 0 ? range.at(1) : range.base });
        return { range: String(range) };
      } catch (error) {
        if (!isKernelError(error)) throw error;
        return { range: String(range), fault: error.message };
      }
    });
  });
}

/** Reads the state of the source guard in the kernel, if a coild of this machine makes links. */
async function guardOf(
  processes: readonly SuiteProcess[],
  stack: NetStack,
  netns: Parameters<typeof openNftElements>[0],
): Promise<NodeFacts["guard"]> {
  const coild = processes.find(({ program }) => program === "coild");
  if (coild === undefined || flagOf(coild.flags, "enable-ipam") === "false") return undefined;
  return readFact(async () => {
    using elements = openNftElements(netns);
    const links = new Map(stack.links.list().map((link) => [link.index, link]));
    const table = Number(flagOf(coild.flags, "pod-table-id") ?? POD_DEFAULTS.tableId);
    const routes = familiesOf(stack.rules).flatMap((family) => stack.routes.list({ family, table }));
    return {
      tables: guardTables(elements),
      refusals: readRefusals(elements).map(({ reason, ifindex, source }) => ({
        ...{ reason, source: String(source) },
        link: links.get(ifindex)?.name ?? `interface ${ifindex}`,
        pod: routes
          .filter(({ linkIndex, dst }) => linkIndex === ifindex && dst.hostBits === 0)
          .map(({ dst }) => String(dst.base)),
      })),
    };
  });
}

/** Sources of tunnel packets that one look reads. */
const MAX_SOURCES = 10_000;

async function translatedOf(
  processes: readonly SuiteProcess[],
  netns: Parameters<typeof openConntrack>[0],
  signal: AbortSignal,
): Promise<NodeFacts["translated"]> {
  const coild = processes.find(({ program }) => program === "coild");
  if (coild === undefined || flagOf(coild.flags, "enable-egress") === "false") return { value: [] };
  const port = Number(flagOf(coild.flags, "egress-port") ?? EGRESS_PORT);
  return readFact(async () => {
    using conntrack = openConntrack(netns);
    const found = await tunnelSources(conntrack, { port, families: [4, 6], limit: MAX_SOURCES }, { signal });
    return found
      .filter(({ source, leavesAs }) => !source.equals(leavesAs))
      .map(({ source, leavesAs }) => ({ source: String(source), leavesAs: String(leavesAs) }));
  });
}

/** Clients that are named for each destination. */
const MAX_CLIENTS = 3;

/** The routers of Egresses on this machine: the destinations to which their common source ports have run out. */
async function sourcePortsOf(
  kernel: ReturnType<typeof openKernel>,
  signal: AbortSignal,
): Promise<NodeFacts["sourcePorts"]> {
  const all = suiteProcesses({ everywhere: true }).filter(({ program }) => program === "coil-egress");
  // One for each network namespace, whatever its processes are.
  const routers = [
    ...new Map(all.map((one) => [optional(() => readlinkSync(`/proc/${one.pid}/ns/net`)), one])).values(),
  ];
  const crowded = await readFact(async () => {
    const found: CrowdedRouter[] = [];
    for (const { pid } of routers) {
      const [namespace, name] = ["COIL_POD_NAMESPACE", "COIL_EGRESS_NAME"].map((one) => variableOf(pid, one));
      using netns = kernel.openNetNs({ path: `/proc/${pid}/ns/net` });
      using elements = openNftElements(netns);
      using conntrack = openConntrack(netns);
      for (const destination of listCrowded(elements, ROUTER_TABLE)) {
        const clients = await busiestClients(conntrack, destination, { limit: MAX_CLIENTS, signal });
        found.push({
          egress: `${namespace ?? "?"}/${name ?? "?"}`,
          destination: crowdedText(destination),
          clients: clients.map(({ client, flows }) => `${client} (${flows})`),
        });
      }
    }
    return found;
  });
  return { routers: routers.length, crowded };
}

function conntrackOf(): NodeFacts["conntrack"] {
  const read = (name: string): number | undefined => {
    const text = optional(() => readFileSync(`/proc/sys/net/netfilter/nf_conntrack_${name}`, "utf8"));
    return text === undefined ? undefined : Number(text);
  };
  const [count, max] = [read("count"), read("max")];
  return count === undefined || max === undefined ? undefined : { count, max };
}

function podLinksOf(stack: NetStack, processes: readonly SuiteProcess[]): NodeFacts["podLinks"] {
  const coild = processes.find(({ program }) => program === "coild");
  const table = Number(flagOf(coild?.flags ?? [], "pod-table-id") ?? POD_DEFAULTS.tableId);
  if (table === 0) return [];
  const routes = ([4, 6] as const).flatMap((family) => stack.routes.list({ family, table }));
  return linksOfRoutes(
    stack,
    routes.filter(({ dst }) => dst.prefixLength > 0),
  );
}

function stateFolders(processes: readonly SuiteProcess[]): readonly string[] {
  return processes.some(({ program }) => program === "nic-agent") ? [NIC_STATE] : [];
}

/** Returns true if this is a container of a pod, whose files are not the node's but for what is mounted. */
function isContainer(): boolean {
  return process.env["KUBERNETES_SERVICE_HOST"] !== undefined;
}

function mounts(): string {
  return optional(() => readFileSync("/proc/self/mountinfo", "utf8")) ?? "";
}

function folderOf(path: string): NodeFacts["folders"] {
  const stats = optional(() => statfsSync(path));
  if (stats === undefined) return [];
  const { blocks, bavail, files, ffree } = stats;
  return [
    {
      path,
      isReadOnly: isReadOnly(mounts(), path, { isContainer: isContainer() }),
      // Some file systems do not count blocks or files.
      freeSpace: blocks === 0 ? 1 : bavail / blocks,
      freeFiles: files === 0 ? 1 : ffree / files,
    },
  ];
}

function certificatesOf(processes: readonly SuiteProcess[]): NodeFacts["certificates"] {
  return processes.flatMap(({ program, flags, pid }) =>
    (CERTIFICATE_FLAGS[program] ?? []).flatMap((flag) => {
      const path = flagOf(flags, flag);
      if (path === undefined || path === "") return [];
      // The file as the program sees it, which can be in a container.
      const seen = path.startsWith("/") ? `/proc/${pid}/root${path}` : `/proc/${pid}/cwd/${path}`;
      const pem = optional(() => readFileSync(seen, "utf8"));
      return [
        { program, path, pem: pem === undefined ? { fault: "it does not exist or may not be read" } : { value: pem } },
      ];
    }),
  );
}
