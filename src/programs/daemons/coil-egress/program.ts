import { type AbortOptions, Dirty, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import {
  ConfigError,
  choiceFlag,
  durationFlag,
  type FlagValues,
  integerFlag,
  repeatedFlag,
  switchFlag,
} from "#base/config";
import type { Health, HealthPart } from "#base/health";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { reconcile, repeat } from "#base/reconcile";
import {
  chooseDriver,
  commandRunner,
  iptablesFilter,
  loadDriverModules,
  nftFilter,
  PRIVATE_RANGES,
  probePort,
  type RouterPod,
  routerRules,
  TUNNEL_DRIVERS,
} from "#features/egress";
import { openConntrack } from "#kernel/conntrack";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { coilLogFlags, endpointFlags, kubeFlags } from "../../shared/daemon/index.ts";
import { type DaemonKit, type DaemonStart, defineDaemon, type Part } from "../../shared/daemon-kit/index.ts";
import { answerProbes } from "./answer-probes.ts";
import { coilEgressEstate } from "./estate.ts";
import { coilEgressMetrics } from "./metrics.ts";
import { reportRouter } from "./report.ts";
import { Router } from "./router.ts";
import { routerPodReader } from "./router-pod.ts";
import { RouterSources } from "./sources.ts";
import { PortsWatch } from "./watch-ports.ts";

/** The interface of a router pod. */
const IFNAME = "eth0";
/** The interval at which everything is compared with the kernel, milliseconds. */
const RESYNC_MS = 60_000;
/** Pause between two checks whether another program has changed nftables, milliseconds. A program that flushes nftables opens the router until the next sync. */
const FILTER_LOOK_MS = 2_000;
/** Pause between two looks for destinations without common source ports, milliseconds. The kernel keeps one for half a minute. */
const PORTS_LOOK_MS = 2_000;
/** The interval at which counters are read, milliseconds (docs/spec/pod-network.md#15). */
const COUNTERS_MS = 30_000;

const flags = {
  ...endpointFlags(":8080", ":8081"),
  fouPort: integerFlag("fou-port", 5555, "UDP port of the tunnels", { min: 1, max: 65_535 }),
  enableSportAuto: switchFlag(
    "enable-sport-auto",
    false,
    "the kernel chooses the tunnels' UDP source port for each flow",
  ),
  backend: choiceFlag("backend", ["iptables", "nftables"], "iptables", "packet filter that masquerades"),
  tunnelDriver: choiceFlag(
    "tunnel-driver",
    TUNNEL_DRIVERS,
    "fou",
    "how packets are carried; auto: fou if the kernel has it, else vxlan; the same as coild's",
  ),
  inClusterCidr: repeatedFlag(
    "in-cluster-cidr",
    (text) => Cidr.parse(text),
    "a range that a wider destination of an Egress does not open; the same as coild's; default: the private ranges",
    "CIDR",
  ),
  drainDelay: durationFlag("drain-delay", "0s", "how long to go on after SIGTERM, while /readyz fails"),
  ...kubeFlags,
  ...coilLogFlags,
};

/** `coil-egress`, the router pod of an Egress (docs/spec/pod-network.md#9). */
export const coilEgress = defineDaemon({
  name: "coil-egress",
  summary: "Router pod of an Egress: takes the packets of its clients out of tunnels and masquerades them.",
  flags,
  notes: [
    "Environment, all required: COIL_POD_ADDRESSES, the addresses of this pod, separated by commas; COIL_POD_NAMESPACE; COIL_EGRESS_NAME.",
    "The first SIGTERM drains for --drain-delay. A second one ends the program.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: coilEgressMetrics,
  estate: coilEgressEstate,
  // The kernel's state stays: it forwards until the pod's namespace ends, and a restarted container finds it.
  leavesEstate: false,
  environment: routerOfEnvironment,
  privileges: { task: "be a router", needs: ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"] },
  open: openRouter,
  parts: routerParts,
  // It goes on while it drains: clients may still come and change.
  drain: async ({ values, health, log }, { signal }) => {
    health.drain("serving");
    log.info("draining", { drainDelayMs: values.drainDelay });
    await sleep(values.drainDelay, { signal });
  },
});

type RouterEnvironment = ReturnType<typeof routerOfEnvironment>;
type Start = DaemonStart<FlagValues<typeof flags>, RouterEnvironment>;
type Kit = DaemonKit<FlagValues<typeof flags>, RouterEnvironment, ReturnType<typeof coilEgressMetrics>>;
type Opened = Awaited<ReturnType<typeof openRouter>>;

/** The pod's network namespace, and the driver of its tunnels. Throws `ConfigError` without the pod's interface, and `TunnelError` without a driver. */
async function openRouter({ values, environment, log, signal, use }: Start) {
  const { addresses } = environment;
  const kernel = openKernel();
  const own = use(kernel.openNetNs("own"));
  const stack = use(kernel.openStack(own));
  if (stack.links.get({ name: IFNAME }) === undefined)
    throw new ConfigError("invalid-flags", [`this network namespace has no interface ${IFNAME}`]);
  const families = ([4, 6] as const).filter((family) => addresses[family] !== undefined);
  const { tunnelDriver: asked } = values;
  await loadDriverModules(asked, { kernel, log, signal });
  const { driver, lacking } = chooseDriver(kernel, asked, families);
  if (lacking.length > 0) log.warn("this kernel lacks what fou needs; vxlan is used", { lacking });
  return { own, stack, driver };
}

async function routerParts(kit: Kit, { own, stack, driver }: Opened): Promise<readonly Part[]> {
  const { values, environment, api, health, metrics, log, use } = kit;
  const { egress } = environment;
  const [nft, elements, conntrack] = [use(openNft(own)), use(openNftElements(own)), use(openConntrack(own))];
  const backend = routerRules(values.backend === "nftables" ? nftFilter(nft) : iptablesFilter(commandRunner()));
  const podNow = routerPodReader({ stack, log }, { ...environment, ifname: IFNAME, driver });
  const dirty = new Dirty();
  const sources = new RouterSources(
    { api, health, log, onChange: () => dirty.mark("pods or egress"), clock: systemClock },
    egress,
  );
  const tunnels = health.part("tunnels", { needed: "always" });
  const flows = health.part("flows");
  flows.ok();
  health.part("serving", { needed: "always" }).ok();
  const guardCounters = () => router.counters();
  const report = reportRouter({ metrics, backend, counters: guardCounters, stack }, { egress, driver });
  const router: Router = new Router(
    { stack, nft, elements, conntrack, backend, podNow, sources, report, flows, log },
    {
      egress,
      driver,
      ifname: IFNAME,
      port: values.fouPort,
      sourcePortAuto: values.enableSportAuto,
      inCluster: values.inClusterCidr.length > 0 ? values.inClusterCidr : PRIVATE_RANGES,
    },
  );
  await router.close();
  const { namespace, name } = egress;
  log.info("started", { namespace, egress: name, driver: driver.name, backend: values.backend });
  return [
    { name: "sources", run: (at) => sources.run(at) },
    tunnelsPart({ router, sources, dirty, health: tunnels }),
    repeatedPart(health, "filter", FILTER_LOOK_MS, async () => {
      if (router.isFilterChanged) dirty.mark("filter changed");
    }),
    repeatedPart(health, "counters", COUNTERS_MS, () => report.counters()),
    portsPart(health, (part) => {
      const crowded = () => router.crowded();
      return new PortsWatch({ crowded, conntrack, report: report.crowded, health: part, log });
    }),
    ...probeParts(kit),
  ];
}

function tunnelsPart({
  router,
  sources,
  dirty,
  health,
}: {
  readonly router: Router;
  readonly sources: RouterSources;
  readonly dirty: Dirty;
  readonly health: HealthPart;
}): Part {
  const sync = (options: AbortOptions): Promise<number> => router.sync(options);
  return {
    name: "tunnels",
    run: async ({ signal }) => {
      await sources.known({ signal });
      await reconcile({ dirty, health, signal, resyncMs: RESYNC_MS, sync });
    },
  };
}

/** Work that recurs, with a part of the health of its name. */
function repeatedPart(health: Health, name: string, everyMs: number, work: () => Promise<void>): Part {
  const part = health.part(name);
  const once = async (): Promise<void> => {
    await work();
    part.ok();
  };
  const onFailure = (error: unknown): void => part.degraded(error);
  return { name, run: ({ signal }) => repeat(once, { signal, everyMs, clock: systemClock, onFailure }) };
}

/** The looks for destinations without common source ports. They report to their part of the health themselves. */
function portsPart(health: Health, watchOf: (part: HealthPart) => PortsWatch): Part {
  const part = health.part("source-ports");
  part.ok();
  const ports = watchOf(part);
  const onFailure = (error: unknown): void => part.degraded(error);
  const everyMs = PORTS_LOOK_MS;
  return {
    name: "source-ports",
    run: ({ signal }) => repeat(() => ports.look({ signal }), { signal, everyMs, clock: systemClock, onFailure }),
  };
}

/** Answers to probes, for each address of the pod. Clients do not judge a router that answers none, so it serves without them. */
function probeParts({ values, environment, health, log }: Kit): readonly Part[] {
  const part = health.part("probes");
  part.ok();
  const answering = { health: part, log, clock: systemClock };
  const port = probePort(values.fouPort);
  return Object.values(environment.addresses).map((address) => ({
    name: `probes-ipv${address.family}`,
    run: (at) => answerProbes(answering, { address, port }, at),
  }));
}

/** The Egress and the addresses of this pod. Throws `ConfigError` naming every wrong variable. */
export function routerOfEnvironment(
  env: Readonly<Record<string, string | undefined>>,
): Pick<RouterPod, "egress" | "addresses"> {
  const faults: string[] = [];
  const read = (name: string, what: string): string => {
    const value = env[name] ?? "";
    if (value === "") faults.push(`the environment variable ${name} is missing; set it to ${what}`);
    return value;
  };
  const namespace = read("COIL_POD_NAMESPACE", "the namespace of this pod");
  const name = read("COIL_EGRESS_NAME", "the name of the Egress");
  const addresses: Partial<Record<IpFamily, IpAddress>> = {};
  for (const text of read("COIL_POD_ADDRESSES", "the addresses of this pod, separated by commas").split(",")) {
    if (text.trim() === "") continue;
    const address = IpAddress.tryParse(text.trim());
    if (address === undefined) faults.push(`COIL_POD_ADDRESSES: "${text.trim()}" is not an IP address`);
    else if (addresses[address.family] !== undefined)
      faults.push(`COIL_POD_ADDRESSES: two addresses of IPv${address.family}`);
    else addresses[address.family] = address;
  }
  if (faults.length > 0) throw new ConfigError("invalid-flags", faults);
  return { egress: { namespace, name }, addresses };
}
