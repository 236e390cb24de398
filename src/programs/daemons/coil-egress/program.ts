import { type AbortOptions, Dirty, sleep, TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, choiceFlag, durationFlag, integerFlag, repeatedFlag, switchFlag } from "#base/config";
import { Health } from "#base/health";
import { Cidr, IpAddress, type IpFamily } from "#base/ip";
import { createRegistry } from "#base/metrics";
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
import {
  coilLogFlags,
  endpointFlags,
  followServers,
  kubeFlags,
  loggerOf,
  openClient,
} from "../../shared/daemon/index.ts";
import { serveHealth, serveMetrics } from "../../shared/http-endpoints/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
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
export const coilEgress = defineProgram({
  name: "coil-egress",
  summary: "Router pod of an Egress: takes the packets of its clients out of tunnels and masquerades them.",
  flags,
  notes: [
    "Environment, all required: COIL_POD_ADDRESSES, the addresses of this pod, separated by commas; COIL_POD_NAMESPACE; COIL_EGRESS_NAME.",
    "The first SIGTERM drains for --drain-delay. A second one ends the program.",
    FOLLOWED_SERVERS_NOTE,
  ],
  metrics: [coilEgressMetrics, restClientMetrics],
  estate: coilEgressEstate,
  run: async ({ values, signal }) => {
    const { egress, addresses } = routerOfEnvironment(process.env);
    const log = loggerOf("coil-egress", values);
    const registry = createRegistry();
    const health = new Health({ log: log.child("health") });
    requirePrivileges("be a router", ["CAP_NET_ADMIN", "CAP_SYS_ADMIN"]);
    sayOpenFiles(log);
    const kernel = openKernel();
    using own = kernel.openNetNs("own");
    using stack = kernel.openStack(own);
    if (stack.links.get({ name: IFNAME }) === undefined)
      throw new ConfigError("invalid-flags", [`this network namespace has no interface ${IFNAME}`]);
    const families = ([4, 6] as const).filter((family) => addresses[family] !== undefined);
    const { tunnelDriver: asked } = values;
    await loadDriverModules(asked, { kernel, log, signal });
    const { driver, lacking } = chooseDriver(kernel, asked, families);
    if (lacking.length > 0) log.warn("this kernel lacks what fou needs; vxlan is used", { lacking });
    await using api = await openClient("coil-egress", values, { registry, clock: systemClock });
    await using _servers = followServers("coil-egress", [api], { log });
    await using _metrics = await serveMetrics({ registry, log, api }, values);
    await using _health = await serveHealth({ health, log }, { address: values.healthAddr });
    using nft = openNft(own);
    using elements = openNftElements(own);
    using conntrack = openConntrack(own);
    const backend = routerRules(values.backend === "nftables" ? nftFilter(nft) : iptablesFilter(commandRunner()));
    const podNow = routerPodReader({ stack, log }, { egress, addresses, ifname: IFNAME, driver });
    const dirty = new Dirty();
    const sources = new RouterSources({ api, health, log, onChange: () => dirty.mark(), clock: systemClock }, egress);
    const tunnels = health.part("tunnels", { needed: "always" });
    const flows = health.part("flows");
    flows.ok();
    const ready = health.part("serving", { needed: "always" });
    ready.ok();
    const guardCounters = () => router.counters();
    const report = reportRouter(
      { metrics: coilEgressMetrics(registry), backend, counters: guardCounters, stack },
      { egress, driver },
    );
    const router = new Router(
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

    // It goes on while it drains: clients may still come and change.
    const group = new TaskGroup();
    group.spawn((at) => sources.run({ signal: at }));
    group.spawn(async (at) => {
      await sources.known({ signal: at });
      const sync = (options: AbortOptions): Promise<number> => router.sync(options);
      await reconcile({ dirty, health: tunnels, signal: at, resyncMs: RESYNC_MS, sync });
    });
    const filter = health.part("filter");
    group.spawn((at) =>
      repeat(
        async () => {
          if (router.isFilterChanged) dirty.mark();
          filter.ok();
        },
        { signal: at, everyMs: FILTER_LOOK_MS, clock: systemClock, onFailure: (error) => filter.degraded(error) },
      ),
    );
    const counters = health.part("counters");
    group.spawn((at) =>
      repeat(
        async () => {
          await report.counters();
          counters.ok();
        },
        { signal: at, everyMs: COUNTERS_MS, clock: systemClock, onFailure: (error) => counters.degraded(error) },
      ),
    );
    const sourcePorts = health.part("source-ports");
    sourcePorts.ok();
    const ports = new PortsWatch({
      ...{ crowded: () => router.crowded(), conntrack, report: report.crowded, health: sourcePorts, log },
    });
    group.spawn((at) =>
      repeat(() => ports.look({ signal: at }), {
        signal: at,
        everyMs: PORTS_LOOK_MS,
        clock: systemClock,
        onFailure: (error) => sourcePorts.degraded(error),
      }),
    );
    // Clients do not judge a router that answers none, so it serves without them.
    const probes = health.part("probes");
    probes.ok();
    const answering = { health: probes, log, clock: systemClock };
    for (const family of families) {
      const address = addresses[family];
      if (address !== undefined)
        group.spawn((at) => answerProbes(answering, { address, port: probePort(values.fouPort) }, { signal: at }));
    }
    group.spawn(async (at) => {
      await untilAborted(AbortSignal.any([signal, at]));
      if (at.aborted) return;
      health.drain("serving");
      log.info("draining", { drainDelayMs: values.drainDelay });
      await sleep(values.drainDelay, { signal: at });
      group.abort();
    });
    log.info("started", {
      namespace: egress.namespace,
      egress: egress.name,
      driver: driver.name,
      backend: values.backend,
    });
    await group.wait();
    // The kernel's state stays: it forwards until the pod's namespace ends, and a restarted container finds it.
    log.info("ended");
    return EXIT.ok;
  },
});

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
