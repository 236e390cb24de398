import { on } from "node:events";
import { join } from "node:path";
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { ConfigError, type FlagValues } from "#base/config";
import { Health } from "#base/health";
import type { Logger } from "#base/log";
import { printable } from "#base/text";
import { type ConfigSource, DEFAULT_SETTINGS, type Settings } from "#base/uplink-model";
import { METRICS_MAP_PATH, readMetricsFile, statsText, uplinkProxyMetrics } from "#features/uplink-proxy";
import { STATUS_REPORT_PATH, Uplinkd } from "#features/uplink-routing";
import { CAP, keepCapabilities } from "#kernel/capabilities";
import { Monitors } from "#kernel/monitor";
import { type NetNs, type NetStack, openKernel } from "#kernel/net";
import { type Nft, openNft } from "#kernel/nft";
import type { KubeClient } from "#kube/client";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { loggerOf, openClient } from "../../shared/daemon/index.ts";
import { type Part, startParts } from "../../shared/daemon-kit/index.ts";
import {
  bootId,
  leaveEstate,
  ownEstateFolders,
  ownNetns,
  type ReadEstates,
  readEstates,
} from "../../shared/estate/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
import { type UplinkPaths, uplinkProxyEstate } from "./estate.ts";
import { openConfig, uplinkFlags } from "./flags.ts";
import { flushAll } from "./flush.ts";
import { proxyParts } from "./serve.ts";

/** `uplink-proxy` (docs/spec/uplink-proxy.md). */
export const uplinkProxy = defineProgram({
  name: "uplink-proxy",
  summary:
    "Sends connections through the cheapest uplink that works. Runs a CONNECT proxy and configures the routing of each uplink.",
  words: { usage: "[stats]", max: 1 },
  flags: uplinkFlags,
  metrics: [uplinkProxyMetrics],
  estate: (values) => uplinkProxyEstate(values, DEFAULT_SETTINGS),
  notes: [
    "Without --parts it runs both parts: the proxy, and the routing of each uplink. Use mgmtproxy-env to make programs use the proxy.",
    "maxCost is 0 by default: only uplinks of cost 0 are used, even if all of them fail, until maxCost is raised.",
    "stats: prints the traffic of each uplink, from the counter file of a running proxy.",
    "At SIGHUP, and when the file is replaced, the settings are read again; an invalid file changes nothing, and /healthz shows its faults.",
    FOLLOWED_SERVERS_NOTE,
  ],
  run: ({ values, words, signal, ownsProcess }) => {
    if (words[0] === undefined) return run(values, { signal, ownsProcess });
    if (words[0] !== "stats")
      throw new ConfigError("invalid-flags", [`unexpected "${words[0]}": the only argument is stats`]);
    process.stdout.write(statsText(readMetricsFile(join(values.runDir, METRICS_MAP_PATH))));
    return Promise.resolve(EXIT.ok);
  },
});

type Values = FlagValues<typeof uplinkFlags>;

async function run(
  values: Values,
  { signal, ownsProcess }: { readonly signal: AbortSignal; readonly ownsProcess: boolean },
): Promise<number> {
  const group = new TaskGroup(signal);
  // SIGHUP is handled from the start, because an unhandled SIGHUP ends the process. The listener ends with the group's signal,
  // because the group waits for the task that listens.
  const hangups = on(process, "SIGHUP", { signal: group.signal });
  const log = loggerOf("uplink-proxy", values);
  // A tunnel has a connection to its client and one to its destination.
  if (!values.flush) sayOpenFiles(log, { filesOfEach: 2 });
  const config = openConfig(values, { log, clock: systemClock });
  if (values.parts !== "proxy" || values.flush)
    requirePrivileges("program routes, rules and nftables", ["CAP_NET_ADMIN"]);
  // The folder of a proxy of another user is closed to root too, once it has dropped its capabilities.
  const estates = values.flush ? readOwnEstates(values) : undefined;
  if (ownsProcess) dropPrivileges(values.flush ? "all" : values.parts, config.current.settings);
  const kernel = openKernel();
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  using nft = openNft(own);
  if (estates !== undefined) return flush({ stack, nft }, config.current.settings, estates);
  using _left = keepEstate(values, config, log);
  await using monitors = new Monitors({ onFailure: (error) => group.fail(error) });
  const health = new Health({ log: log.child("health") });
  const deps = { config, own, stack, nft, monitors, health, log };
  const uplinkd = openUplinkd(values, deps);
  const routing: readonly Part[] = [
    { name: "uplinks", run: (at) => uplinkd.run(at) },
    {
      name: "reload",
      run: async () => {
        for await (const _ of hangups) config.reload();
      },
    },
  ];
  using proxy =
    values.parts === "routing"
      ? undefined
      : proxyParts(
          { ...deps, signal: group.signal, uplinkd, openApi: apiOpener(values) },
          { ...values, ownsKernel: values.parts === "all" },
        );
  startParts([...routing, ...(proxy?.parts ?? [])], group);
  await group.wait();
  return EXIT.ok;
}

/** `undefined` if no part needs the API server. */
function apiOpener(values: Values): (() => Promise<KubeClient>) | undefined {
  const isNeeded = values.parts !== "routing" && (values.cdi || values.clusterSecret !== undefined);
  return isNeeded ? () => openClient("uplink-proxy", values, { clock: systemClock }) : undefined;
}

/** Leaves the estate, also of settings that come later, until disposed. */
function keepEstate(values: Values, config: ConfigSource, log: Logger): Disposable {
  const leave = (): void => {
    const { settings, ready } = config.current;
    if (ready) leaveEstate("uplink-proxy", uplinkProxyEstate(values, settings), { log });
  };
  leave();
  return config.onChange(leave);
}

/** `--flush`: removes the program's kernel objects, prints what was done, and returns the exit code: 1 if something is left. */
function flush(kernel: Parameters<typeof flushAll>[0], settings: Settings, estates: ReadEstates): number {
  const { changes, left } = flushAll(kernel, settings, estates);
  const lines = [
    `removed the kernel objects of uplink-proxy: ${changes} changes`,
    ...(estates.known.size > 0 ? [] : ["note: it has left no estate here, so former settings are not known"]),
    ...left.map((line) => `left: ${line}`),
  ];
  process.stdout.write(`${lines.map(printable).join("\n")}\n`);
  return left.length === 0 ? EXIT.ok : EXIT.failed;
}

function openUplinkd(
  values: Values,
  {
    config,
    own,
    stack,
    nft,
    monitors,
    health,
    log,
  }: {
    readonly config: ConfigSource;
    readonly own: NetNs;
    readonly stack: NetStack;
    readonly nft: Nft;
    readonly monitors: Monitors;
    readonly health: Health;
    readonly log: Logger;
  },
): Uplinkd {
  const topics = { links: true, addresses: true, routes: true, rules: true };
  const servesControl = values.parts !== "proxy" && values.controlSocket !== "";
  return new Uplinkd(
    {
      config,
      stack,
      nft,
      follow: (changed) => monitors.watch(own, topics, changed),
      health: health.part("uplinks", { needed: "always" }),
      ...(servesControl ? { controlHealth: health.part("control-socket", { needed: "always" }) } : {}),
      clock: systemClock,
      log,
    },
    {
      readOnly: values.parts === "proxy",
      ...(values.parts === "all" ? {} : { statusReport: join(values.runDir, STATUS_REPORT_PATH) }),
      ...(servesControl ? { controlSocket: values.controlSocket } : {}),
    },
  );
}

/** The estates of this program on this host. */
function readOwnEstates(values: UplinkPaths): ReadEstates {
  const name = "uplink-proxy";
  const template = uplinkProxyEstate({ ...values, parts: "all" }, DEFAULT_SETTINGS);
  const foldersOf = (): ReturnType<typeof ownEstateFolders> => ownEstateFolders(name, process.env);
  return readEstates(new Map([[name, template]]), { foldersOf, boot: bootId(), netns: ownNetns() });
}

/**
 * Drops the capabilities that the systemd unit would drop, if the program was started as root without a unit. Must be called before
 * threads are created, because threads inherit capabilities.
 */
function dropPrivileges(parts: "all" | "proxy" | "routing", { listeners }: Settings): void {
  const isLow = listeners.some(({ port }) => port < FIRST_FREE_PORT);
  keepCapabilities([...(parts === "proxy" ? [] : [CAP.NET_ADMIN]), ...(isLow ? [CAP.NET_BIND_SERVICE] : [])]);
}

/** The default of `net.ipv4.ip_unprivileged_port_start`. */
const FIRST_FREE_PORT = 1024;
