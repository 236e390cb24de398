/**
 * The service proxy's table, filled and changed, beside kube-proxy's layout written through nft(8): 1,000, 10,000 and 30,000 Services
 * of 10 endpoints, in one run; and beside what the specification allows, where the peer has no such figure.
 *
 *     node bench/service-sync.ts [--json] [--sizes 1000,10000,30000] [--limit SECONDS] [--budgets many,burst,restart,answers,packets]
 *
 * Needs root. Each side runs in a process and a network namespace of its own. The peer is a generator of the rules that kube-proxy
 * has (docs/spec/service-proxy.md#2.6), without its listing of the table, given to `nft -f` at once, which takes some minutes for 30,000;
 * if it takes longer than the limit, it is ended, and the figure is the limit. First packets go through the real tables to
 * servers on loopback addresses.
 * `--sizes=` or `--budgets=` leaves one half out.
 */
import { fork } from "node:child_process";
import { parseArgs } from "node:util";
import { BUDGETS, type Budget } from "./service-sync.budgets.ts";
import type { Sample } from "./service-sync.measure.ts";
import { runOurs } from "./service-sync.ours.ts";
import { runPeer } from "./service-sync.peer.ts";

const PEER = "kube-proxy's layout by nft";
const BUDGET = "at most, by the specification";

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
    limit: { type: "string", default: "900" },
    budgets: { type: "string", default: Object.keys(BUDGETS).join(",") },
  },
});

/** Runs in a separate process, so that nothing of another case is in its memory. */
async function child<T>(...words: readonly string[]): Promise<T> {
  const process_ = fork(import.meta.filename, [...words, "--limit", values.limit], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const { promise, resolve, reject } = Promise.withResolvers<T>();
  process_.once("message", (result) => resolve(result as T));
  process_.once("exit", (code) => reject(new Error(`${words.join(" ")} ended with code ${code}`)));
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
    // If the peer did not complete its table, no packets can be compared.
    ...(peer.firstPacketUs === null
      ? []
      : [row("first packet, p50", "us", ({ firstPacketUs }) => firstPacketUs?.p50 ?? 0)]),
    row("longest event-loop block", "ms", ({ blockMs }) => blockMs),
    row("an answer meanwhile, p99", "ms", ({ answerMs }) => answerMs.p99),
  ];
}

const budgetCase = ({ case: name, unit, ours, budget }: Budget): Case => ({
  case: name,
  ours: round(ours),
  peer: budget,
  peerName: BUDGET,
  unit,
  ratio: budget === 0 ? ours : round(ours / budget),
});

const words = (text: string): string[] => text.split(",").filter((word) => word !== "");

async function main(): Promise<void> {
  const cases: Case[] = [];
  const say = (what: string): void => {
    if (!values.json) console.log(`${what} …`);
  };
  for (const size of words(values.sizes)) {
    say(`${size} Services`);
    cases.push(...casesOf(Number(size), await child<Sample>("ours", size), await child<Sample>("peer", size)));
  }
  for (const name of words(values.budgets)) {
    say(name);
    cases.push(...(await child<readonly Budget[]>("budget", name)).map(budgetCase));
  }
  if (values.json) {
    console.log(JSON.stringify({ name: "service-sync", betterIs: "lower", cases }));
    return;
  }
  const line = (...[name, ours, peer, ratio]: readonly (string | number)[]): void =>
    console.log(
      `${String(name).padEnd(72)}${String(ours).padStart(10)}${String(peer).padStart(10)}${String(ratio).padStart(10)}`,
    );
  line("lower is better", "ours", "peer/max", "ratio");
  for (const { case: name, ours, peer, unit, ratio } of cases) line(`${name} (${unit})`, ours, peer, ratio);
  const compared = cases.find(({ peerName }) => peerName === PEER);
  if (compared !== undefined) console.log(`ratio ${compared.ratio} ${PEER}`);
}

async function run(side: string, what: string): Promise<Sample | readonly Budget[]> {
  if (side === "ours") return runOurs(Number(what));
  if (side === "peer") return runPeer(Number(what), Number(values.limit) * 1000);
  const budget = BUDGETS[what];
  if (budget === undefined)
    throw new Error(`--budgets: there is no ${what}; there are ${Object.keys(BUDGETS).join(", ")}`);
  return budget();
}

const [side, what = ""] = positionals;
if (side === undefined) await main();
else {
  const result = await run(side, what);
  process.send?.(result, () => process.exit(0));
}
