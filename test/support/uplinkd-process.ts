/**
 * `Uplinkd` as a separate process, for tests that kill it: `node uplinkd-process.ts FILE` in the namespace that it is to
 * program. Prints its uplinks as a line of JSON whenever they change: the name, and the reason of its failure or an empty text.
 */
import { systemClock } from "#base/clock";
import { Health } from "#base/health";
import { nullLogger } from "#base/log";
import { SettingsFile } from "#features/uplink-config";
import { Monitors } from "#kernel/monitor";
import { openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { Uplinkd } from "../../src/features/uplink-routing/uplinkd/index.ts";

const kernel = openKernel();
using netns = kernel.openNetNs("own");
using stack = kernel.openStack(netns);
using nft = openNft(netns);
await using monitors = new Monitors({
  onFailure: (error) => {
    throw error;
  },
});
const topics = { links: true, addresses: true, routes: true, rules: true };
const uplinkd = new Uplinkd({
  config: new SettingsFile({ clock: systemClock, log: nullLogger }, { path: process.argv[2] ?? "" }),
  stack,
  nft,
  follow: (changed) => monitors.watch(netns, topics, changed),
  health: new Health().part("uplinkd"),
  clock: systemClock,
  log: nullLogger,
});
uplinkd.snapshots.onChange(({ uplinks }) => {
  process.stdout.write(`${JSON.stringify(uplinks.map(({ name, status }) => [name, status.lastError]))}\n`);
});
await uplinkd.run({ signal: new AbortController().signal });
