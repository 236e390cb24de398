/**
 * The service proxy's table, filled and changed, beside kube-proxy's layout written through nft(8): 1,000, 10,000 and 30,000 Services
 * of 10 endpoints, in one run.
 *
 *     node bench/service-sync.ts [--json] [--sizes 1000,10000,30000] [--limit SECONDS]
 *
 * Needs root. Each side runs in a process and a network namespace of its own. The peer is a generator of the rules that kube-proxy
 * has (spec service-proxy 2.6), without its listing of the table, given to `nft -f` at once; where that takes longer than the
 * limit it is ended, and the figure is the limit. First packets go through the real tables to servers on loopback addresses.
 */
import { fork } from "node:child_process";
import { parseArgs } from "node:util";
import { runOurs } from "./service-sync.ours.ts";
import { runPeer } from "./service-sync.peer.ts";
import type { Sample } from "./service-sync.world.ts";

const PEER = "kube-proxy's layout by nft";

interface Case {
  readonly case: string;
  readonly ours: number;
  readonly peer: number;
  readonly peerName: string;
  readonly unit: string;
  readonly ratio: number;
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    json: { type: "boolean", default: false },
    sizes: { type: "string", default: "1000,10000,30000" },
    limit: { type: "string", default: "120" },
  },
});

async function child(side: "ours" | "peer", size: number): Promise<Sample> {
  const process_ = fork(import.meta.filename, [side, String(size), "--limit", values.limit], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const { promise, resolve, reject } = Promise.withResolvers<Sample>();
  process_.once("message", (sample) => resolve(sample as Sample));
  process_.once("exit", (code) => reject(new Error(`${side} with ${size} Services ended with code ${code}`)));
  return promise;
}

const round = (value: number): number => Number(value.toPrecision(3));

function casesOf(size: number, ours: Sample, peer: Sample): Case[] {
  const row = (name: string, unit: string, of: (sample: Sample) => number): Case => ({
    case: `${name}, ${size} Services`,
    ours: round(of(ours)),
    peer: round(of(peer)),
    peerName: PEER,
    unit,
    ratio: round(of(ours) / of(peer)),
  });
  return [
    row("first sync", "s", ({ firstSyncMs }) => firstSyncMs / 1000),
    row("to the kernel", "MiB", ({ bytes }) => bytes / 2 ** 20),
    row("peak memory of the writer", "MiB", ({ peakMiB }) => peakMiB),
    row("one endpoint changed, p50", "ms", ({ changeMs }) => changeMs.p50),
    row("one endpoint changed, p99", "ms", ({ changeMs }) => changeMs.p99),
    // Where the peer did not get its table done there are no packets to compare.
    ...(peer.firstPacketUs === null
      ? []
      : [row("first packet, p50", "us", ({ firstPacketUs }) => firstPacketUs?.p50 ?? 0)]),
    row("longest event-loop block", "ms", ({ blockMs }) => blockMs),
    row("an answer meanwhile, p99", "ms", ({ answerMs }) => answerMs.p99),
  ];
}

async function main(): Promise<void> {
  const cases: Case[] = [];
  for (const size of values.sizes.split(",").map(Number)) {
    if (!values.json) console.log(`${size} Services …`);
    cases.push(...casesOf(size, await child("ours", size), await child("peer", size)));
  }
  if (values.json) {
    console.log(JSON.stringify({ name: "service-sync", betterIs: "lower", cases }));
    return;
  }
  const line = (...[name, ours, peer, ratio]: readonly (string | number)[]): void =>
    console.log(
      `${String(name).padEnd(52)}${String(ours).padStart(10)}${String(peer).padStart(10)}${String(ratio).padStart(10)}`,
    );
  line("lower is better", "ours", "peer", "ratio");
  for (const { case: name, ours, peer, unit, ratio } of cases) line(`${name} (${unit})`, ours, peer, ratio);
  console.log(`ratio ${cases[0]?.ratio} ${PEER}`);
}

const [side, size] = positionals;
if (side === undefined) await main();
else {
  const sample = await (side === "ours" ? runOurs(Number(size)) : runPeer(Number(size), Number(values.limit) * 1000));
  process.send?.(sample, () => process.exit(0));
}
