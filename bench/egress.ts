/**
 * Egress NAT with the VXLAN driver, on one machine:
 * - bytes and connections a second through our tunnel, beside the same tunnel made by commands of `ip` and beside the same router without a
 *   tunnel; in all of them the work is the kernel's, and done by one processor;
 * - an ADD of a pod that names an Egress, beside one that names none;
 * - the time from the edit of an Egress to the last of its pods;
 * - the start of a router that has many clients.
 *
 *     ./run bench egress [--json] [--rounds=N] [--pods=N] [--clients=N]
 *
 * Each figure with a limit is beside it; the exit code is 1 if a figure exceeds its limit. Times are medians, unless a row says otherwise.
 */
import { parseArgs } from "node:util";
import { openWay, WAYS, type Way, type WayName } from "./egress.path.ts";
import { measurePods } from "./egress.pods.ts";
import { measureRouter } from "./egress.router.ts";
import { quantiles } from "./service-sync.measure.ts";

/** Measurements are short and many, in turns: the machine itself is faster in one second than in the next. */
const BYTES = 2 ** 27;
const STREAMS = 4;
const CONNECT = { ms: 150, atOnce: 16 };
const ADDS = 30;
const EDITS = 10;
const STARTS = 3;

const { values } = parseArgs({
  options: {
    json: { type: "boolean", default: false },
    rounds: { type: "string", default: "40" },
    pods: { type: "string", default: "100" },
    clients: { type: "string", default: "5000" },
  },
});
const stop = new AbortController();
for (const name of ["SIGINT", "SIGTERM"] as const)
  process.once(name, () => stop.abort(new DOMException(name, "AbortError")));
const signal = AbortSignal.any([stop.signal, AbortSignal.timeout(900_000)]);

interface Row {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  /** The figure must not be below `least`, nor above `most`. */
  readonly least?: number;
  readonly most?: number;
}

function numberOf(name: "rounds" | "pods" | "clients"): number {
  const number = Number(values[name]);
  if (!Number.isInteger(number) || number < 1)
    throw new Error(`--${name}: "${values[name]}" is not a whole number from 1`);
  return number;
}

const say = (text: string): void => void (values.json || process.stderr.write(`${text} …\n`));
const median = (numbers: readonly number[]): number => quantiles(numbers).p50;

/** All ways stand at once and are measured in turns, so that each round's figures can be compared. */
async function paths(rounds: number): Promise<Row[]> {
  await using open = new AsyncDisposableStack();
  const ways = new Map<WayName, Way>();
  for (const name of WAYS) ways.set(name, open.use(await openWay(name, rounds)));
  const bytes = new Map<WayName, number[]>(WAYS.map((name) => [name, []]));
  const connects = new Map<WayName, number[]>(WAYS.map((name) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    // The order changes: the first of a round may find the processor busy with what went before.
    const order = WAYS.map((_, at) => WAYS[(at + round) % WAYS.length] ?? "ours");
    for (const name of order) {
      signal.throwIfAborted();
      bytes.get(name)?.push((await ways.get(name)?.bytesPerSecond({ bytes: BYTES, streams: STREAMS })) ?? 0);
      connects.get(name)?.push((await ways.get(name)?.connectsPerSecond(CONNECT)) ?? 0);
    }
  }
  const rows: Row[] = [];
  for (const [what, figures, unit, scale] of [
    [`bytes a second, ${STREAMS} streams`, bytes, "MiB", 2 ** 20],
    [`connections a second, ${CONNECT.atOnce} at once`, connects, "", 1],
  ] as const) {
    for (const name of WAYS)
      rows.push({ what: `${what}: ${name}`, value: median(figures.get(name) ?? []) / scale, unit });
    const [ours = [], ...others] = WAYS.map((name) => figures.get(name) ?? []);
    for (const [at, other] of others.entries()) {
      const ratio = median(ours.map((one, round) => one / (other[round] ?? Number.NaN)));
      const name = WAYS[at + 1] ?? "";
      rows.push({
        what: `${what}: ours, of ${name}`,
        value: ratio,
        unit: "",
        ...(name === "ip commands" ? { least: 0.95 } : {}),
      });
    }
  }
  return rows;
}

async function pods(count: number): Promise<Row[]> {
  const { addMs, editMs } = await measurePods({ adds: ADDS, pods: count, edits: EDITS }, { signal });
  const [plain, client] = [median(addMs.plain), median(addMs.client)];
  return [
    { what: "ADD of a pod", value: plain, unit: "ms" },
    { what: "ADD of a pod that names an Egress", value: client, unit: "ms" },
    { what: "what the Egress adds to an ADD", value: client - plain, unit: "ms", most: 10 },
    { what: `from an edit of an Egress to the last of ${count} pods`, value: median(editMs), unit: "ms" },
    { what: `the same, the slowest of ${EDITS}`, value: Math.max(...editMs), unit: "ms", most: 500 },
  ];
}

async function router(clients: number): Promise<Row[]> {
  const starts = await measureRouter({ clients, rounds: STARTS }, { signal });
  const worst = (of: "ms" | "peakMiB" | "links"): number => Math.max(...starts.map((one) => one[of]));
  const what = `a router with ${clients} clients of both families, the worst of ${STARTS} starts`;
  return [
    { what: `${what}: until it serves all`, value: worst("ms") / 1000, unit: "s", most: 3 },
    { what: `${what}: peak RSS`, value: worst("peakMiB"), unit: "MiB", most: 150 },
    { what: `${what}: devices`, value: worst("links"), unit: "", most: 1 },
  ];
}

say("packets");
const rows = await paths(numberOf("rounds"));
say("pods");
rows.push(...(await pods(numberOf("pods"))));
say("a router");
rows.push(...(await router(numberOf("clients"))));
const isExceeded = ({ value, least = -Infinity, most = Infinity }: Row): boolean => !(value >= least && value <= most);
if (values.json)
  console.log(JSON.stringify({ name: "egress", rows, exceeded: rows.filter(isExceeded).map(({ what }) => what) }));
else
  for (const row of rows) {
    const { what, value, unit, least, most } = row;
    const limit = least !== undefined ? `  at least ${least}` : most !== undefined ? `  at most ${most}` : "";
    const shown = `${what.padEnd(92)}${value.toFixed(2).padStart(10)} ${unit.padEnd(4)}`;
    console.log(`${shown}${limit}${isExceeded(row) ? "  EXCEEDED" : ""}`);
  }
if (rows.some(isExceeded)) process.exitCode = 1;
