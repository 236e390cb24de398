/**
 * NICs of a VPC on a live Neutron, on one machine:
 * - an ADD of a bound port, plugged directly, until the port is active;
 * - 50 pods with one NIC at once, beside 50 ports that one request makes and that are plugged by `ip` and `ovs-vsctl`, in turns;
 * - the requests to Neutron for each of these pods;
 * - the memory of `nic-controller` with 5,000 claims, beside a Neutron in memory.
 *
 *     ./run bench nics [--json] [--adds=N] [--pods=N] [--rounds=N] [--claims=N]
 *
 * Each figure with a limit is beside it; the exit code is 1 if a figure exceeds its limit. Times are medians.
 */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { Semaphore, sleep } from "#base/async";
import { resources } from "#kube/client";
import { LiveBed } from "#test/live-neutron";
import { NicBed } from "#test/nic-bed";
import { MemoryNeutron } from "./nics.neutron.ts";
import { type Burst, measureAdds, measureBurst, measureByHand } from "./nics.pods.ts";
import { quantiles } from "./service-sync.measure.ts";

/** Time for a program to come to rest, in milliseconds. */
const REST_MS = 8000;
const LIST_MS = 3000;

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    adds: { type: "string", default: "20" },
    pods: { type: "string", default: "50" },
    rounds: { type: "string", default: "3" },
    claims: { type: "string", default: "5000" },
  },
});

interface Row {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** The figure must not be above. */
  readonly most?: number;
}

function numberOf(name: "adds" | "pods" | "rounds" | "claims"): number {
  const number = Number(values[name]);
  if (!Number.isInteger(number) || number < 0) throw new Error(`--${name}: "${values[name]}" is not a whole number`);
  return number;
}

const say = (text: string): void => void (values.json || process.stderr.write(`${text} …\n`));
const median = (numbers: readonly number[]): number => quantiles(numbers).p50;

async function live(): Promise<Row[]> {
  const count = numberOf("pods");
  say("starting Neutron");
  await using bed = await LiveBed.open("bench-nics");
  say("one pod after the other");
  const adds = await measureAdds(bed, numberOf("adds"));
  const rows: Row[] = [
    { what: "ADD of a bound port until it is active, direct", value: median(adds) / 1000, unit: "s", most: 1.2 },
    { what: "the same, the slowest", value: Math.max(...adds) / 1000, unit: "s" },
  ];
  const bursts: Burst[] = [];
  const byHand: number[] = [];
  for (let round = 0; round < numberOf("rounds"); round += 1) {
    say(`${count} pods at once, and ${count} ports by hand`);
    byHand.push(await measureByHand(bed, count));
    bursts.push(await measureBurst(bed, count));
  }
  const ratios = bursts.map(({ ms }, at) => ms / (byHand[at] ?? Number.NaN));
  rows.push(
    {
      what: `${count} pods at once, until all are active`,
      value: median(bursts.map(({ ms }) => ms)) / 1000,
      unit: "s",
    },
    { what: `${count} ports by hand, until all are active`, value: median(byHand) / 1000, unit: "s" },
    { what: "the ratio of both", value: median(ratios), unit: "", most: 1.5 },
    {
      what: "requests to Neutron for each pod",
      value: Math.max(...bursts.map(({ requestsPerPod }) => requestsPerPod)),
      unit: "",
      most: 3,
    },
  );
  return rows;
}

/** The memory of a controller whose claims are all active, after some seconds of rest. */
async function memory(count: number): Promise<Row[]> {
  say(`${count} claims`);
  const cleanUps: (() => unknown)[] = [];
  try {
    const scope = { after: (cleanUp: () => unknown) => void cleanUps.push(cleanUp) };
    const bed = await NicBed.on(scope, MemoryNeutron.start());
    bed.writeCredentials(bed.neutron.url);
    for (let at = 0; at < 100; at += 1) await bed.api.create(resources.nodes, { metadata: { name: `node-${at}` } });
    const controller = bed.run();
    const atOnce = new Semaphore(32);
    const make = (at: number): Promise<string> =>
      atOnce.run(() => bed.pod(`pod-${at}`, { nics: [{ subnet: "subnet-1" }], node: `node-${at % 100}` }));
    await Promise.all(Array.from({ length: count }, (_, at) => make(at)));
    // A list of all claims costs the API server, which is in this process, a part of a second.
    const isActive = async (): Promise<boolean> => {
      await sleep(LIST_MS);
      const claims = await bed.claims();
      const active = claims.filter(({ status }) => status?.phase === "Active").length;
      return active === count;
    };
    await bed.until("all claims are active", isActive, 240_000);
    await sleep(REST_MS);
    const status = readFileSync(`/proc/${controller.child.pid}/status`, "utf8");
    const mib = (key: string): number => Number(new RegExp(`^${key}:\\s+(\\d+) kB`, "m").exec(status)?.[1]) / 1024;
    return [
      { what: `nic-controller with ${count} claims, RSS at rest`, value: mib("VmRSS"), unit: "MiB", most: 250 },
      { what: "the same, at its peak", value: mib("VmHWM"), unit: "MiB" },
    ];
  } finally {
    for (const cleanUp of cleanUps.toReversed()) await cleanUp();
  }
}

const rows = [
  ...(numberOf("adds") > 0 ? await live() : []),
  ...(numberOf("claims") > 0 ? await memory(numberOf("claims")) : []),
];
const isExceeded = ({ value, most = Number.POSITIVE_INFINITY }: Row): boolean => !(value <= most);
if (values.json)
  console.log(JSON.stringify({ name: "nics", rows, exceeded: rows.filter(isExceeded).map(({ what }) => what) }));
else
  for (const row of rows) {
    const { what, value, unit, most } = row;
    const shown = `${what.padEnd(60)}${value.toFixed(2).padStart(10)} ${unit.padEnd(4)}`;
    console.log(`${shown}${most === undefined ? "" : `  at most ${most}`}${isExceeded(row) ? "  EXCEEDED" : ""}`);
  }
if (rows.some(isExceeded)) process.exitCode = 1;
