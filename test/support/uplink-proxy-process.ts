/**
 * `Uplinkd` and `UplinkProxy` as a process of their own, for tests in namespaces: `node proxy-process.ts FILE SECRETS` in the namespace of
 * a node; the listener for pods has its token and certificate in the folder SECRETS. Log lines go to standard error, `ready` to standard
 * output when every listener is bound.
 */
import { TaskGroup } from "#base/async";
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { SettingsFile } from "#features/uplink-config";
import { Monitors } from "#kernel/monitor";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { listenTcp } from "#kernel/socket";
import { Secrets } from "../../src/features/uplink-proxy/policy/index.ts";
import { UplinkProxy } from "../../src/features/uplink-proxy/proxy/index.ts";
import { startWorkers } from "../../src/features/uplink-proxy/workers/index.ts";
import { installTransparent, ownMark } from "../../src/features/uplink-routing/guard/index.ts";
import { Uplinkd } from "../../src/features/uplink-routing/uplinkd/index.ts";

const stop = new AbortController();
process.on("SIGTERM", () => stop.abort());
// This call keeps the process alive until the monitors have ended, because their thread does not.
const alive = setInterval(() => undefined, 60_000);
await serve();
clearInterval(alive);

async function serve(): Promise<void> {
  const kernel = openKernel();
  using netns = kernel.openNetNs("own");
  using stack = kernel.openStack(netns);
  using nft = openNft(netns);
  const log = createLogger({ name: "uplink-proxy", level: "debug" });
  const group = new TaskGroup(stop.signal);
  await using monitors = new Monitors({ onFailure: (error) => group.spawn(() => Promise.reject(error)) });
  const topics = { links: true, addresses: true, routes: true, rules: true };
  const config = new SettingsFile({ log, clock: systemClock }, { path: process.argv[2] ?? "" });
  const uplinkd = new Uplinkd({
    config,
    stack,
    nft,
    follow: (changed) => monitors.watch(netns, topics, changed),
    health: new Health({}).part("uplinkd"),
    log,
    clock: systemClock,
  });
  const { settings } = uplinkd;
  const { transparent } = settings;
  const secrets = new Secrets(
    { clock: systemClock, log, clusterSecret: async () => ({ kind: "standalone" }) },
    { dir: process.argv[3] ?? "", address: IpAddress.parse("169.254.100.1") },
  );
  const proxy = new UplinkProxy(
    {
      snapshots: uplinkd.snapshots,
      evidence: uplinkd.evidence,
      log,
      secrets,
      startThreads: startWorkers,
      openListener: ({ address, port }) => listenTcp(address, port, { transparent: true }),
      clock: systemClock,
    },
    settings,
    { version: "test", ...(transparent.enabled ? { mark: ownMark(transparent) } : {}) },
  );
  group.spawn((signal) => uplinkd.run({ signal }));
  await secrets.sync();
  group.spawn((signal) => secrets.run({ signal }));
  group.spawn((signal) => proxy.run({ signal }));
  while (settings.listeners.some(({ name }) => !proxy.bound.has(name))) {
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  if (transparent.enabled) installTransparent(stack, nft, settings, { log });
  process.stdout.write("ready\n");
  await group.wait();
}
