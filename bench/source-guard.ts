/**
 * The cost of the source guard: bytes and connections for each second of processor time, from a pod to another one of its node, with the guard of 100 pods and
 * without it, in the same namespaces, in turns. The time is that of both ends, which do the kernel's work between them, so that other load on the machine counts little.
 *
 *     ./run bench source-guard [--json] [--rounds=N]
 *
 * Each figure with a limit is beside it; the exit code is 1 if a figure exceeds its limit.
 */
import { execFileSync, fork } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { PodNetwork } from "#features/pod-network";
import { type GuardedLink, removeGuard, SourceGuard } from "#features/source-guard";
import { openKernel } from "#kernel/net";
import { inNetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { end } from "./cni-add.world.ts";
import type { Command } from "./egress.load.ts";
import { quantiles } from "./service-sync.measure.ts";

const BYTES = 2 ** 28;
const STREAMS = 4;
const CONNECT = { ms: 150, atOnce: 16 };
const PODS = 100;
const PORT = 8000;
const LEAST = 0.98;
const { values } = parseArgs({
  options: { json: { type: "boolean", default: false }, rounds: { type: "string", default: "30" } },
});
const rounds = Number(values.rounds);
if (!Number.isInteger(rounds) || rounds < 1)
  throw new Error(`--rounds: "${values.rounds}" is not a whole number from 1`);

await using undo = new AsyncDisposableStack();
const kernel = openKernel();
const names = ["node", "a", "b"].map((name) => `isthmus-bench-guard-${process.pid}-${name}`);
for (const name of names) {
  kernel.createNetNs(name)[Symbol.dispose]();
  undo.defer(() => kernel.deleteNetNs(name));
}
const [node, ...pods] = names.map((name) => undo.use(kernel.openNetNs({ name })));
if (node === undefined) throw new Error("there is no node");
const guardKernel = { nft: undo.use(openNft(node)), elements: undo.use(openNftElements(node)) };
const guard = new SourceGuard(guardKernel, { mode: "on" });
const network = inNetNs(
  node,
  () =>
    new PodNetwork(
      { kernel, log: nullLogger },
      { tableId: 116, rulePriority: 2000, protocolId: 30, compatCalico: false, hostLinkLocal: false, mtuBytes: 1500 },
    ),
);
undo.use(network);
network.setNodeAddresses({ ipv4: IpAddress.parse("192.0.2.1"), ipv6: IpAddress.parse("2001:db8::1") });
network.initHost();
const addressOf = (pod: number) => ({
  ipv4: IpAddress.parse(`10.1.0.${pod + 1}`),
  ipv6: IpAddress.parse(`fd01::${pod + 1}`),
});
for (const [at, name] of names.slice(1).entries())
  await network.setUp({
    ...{
      attachment: { containerId: `c${at}`, ifname: "eth0" },
      pool: "default",
      pod: { namespace: "ns", name: `p${at}` },
    },
    ...{ ...addressOf(at), netns: `/run/netns/${name}` },
  });
const others = Array.from({ length: PODS - pods.length }, (_, at): GuardedLink => {
  const { ipv4, ipv6 } = addressOf(at + pods.length);
  return { ifindex: 1000 + at, addresses: [ipv4, ipv6], extra: [] };
});
const links = [...network.list().map(({ ifindex, addresses }) => ({ ifindex, addresses, extra: [] })), ...others];

const start = (at: number) => {
  const child = inNetNs(pods[at] ?? node, () =>
    fork(join(import.meta.dirname, "egress.load.ts"), [], { stdio: ["ignore", "ignore", "inherit", "ipc"] }),
  );
  undo.defer(() => end(child));
  execFileSync("taskset", ["--all-tasks", "--cpu-list", "--pid", "0", String(child.pid)], { stdio: "ignore" });
  const call = async (command: Command): Promise<number> => {
    child.send(command);
    const [answer] = (await once(child, "message")) as [{ readonly result?: number; readonly error?: string }];
    if (answer.result === undefined) throw new Error(`${command.do}: ${answer.error}`);
    return answer.result;
  };
  /** Processor time of all threads, seconds. */
  const seconds = (): number => {
    const tasks = `/proc/${child.pid}/task`;
    const times = readdirSync(tasks).map((task) => readFileSync(`${tasks}/${task}/schedstat`, "utf8").split(" ")[0]);
    return times.reduce((sum, time) => sum + Number(time), 0) / 1e9;
  };
  return { call, seconds };
};
const [client, server] = [start(0), start(1)];
const FAMILIES = ["ipv4", "ipv6"] as const;
const hosts = Object.fromEntries(FAMILIES.map((family) => [family, String(addressOf(1)[family])]));
const ports = Array.from({ length: 2 * rounds + 1 }, (_, at) => PORT + at);
for (const family of FAMILIES) await server.call({ do: "serve", host: hosts[family] ?? "", ports });

const figures = new Map<string, number[]>();
const note = (key: string, value: number): void => void figures.set(key, [...(figures.get(key) ?? []), value]);
/** Returns the amount that is done in a second of processor time of both ends. */
async function perSecond(command: Command, amountOf: (result: number) => number): Promise<number> {
  const before = client.seconds() + server.seconds();
  const amount = amountOf(await client.call(command));
  return amount / (client.seconds() + server.seconds() - before);
}

let used = 0;
for (let round = 0; round < rounds; round += 1) {
  const order = round % 2 === 0 ? (["with", "without"] as const) : (["without", "with"] as const);
  for (const how of order) {
    if (how === "with") guard.sync(links);
    else removeGuard(guardKernel);
    // The kernel frees what was replaced after a while.
    await client.call({ do: "transfer", host: hosts["ipv4"] ?? "", port: PORT, bytes: BYTES / 8, streams: STREAMS });
    for (const family of FAMILIES) {
      const transfer = {
        do: "transfer",
        host: hosts[family] ?? "",
        port: PORT,
        bytes: BYTES,
        streams: STREAMS,
      } as const;
      note(`bytes ${family} ${how}`, await perSecond(transfer, () => BYTES));
    }
    used += 1;
    const connect = { do: "connect", host: hosts["ipv4"] ?? "", port: ports[used] ?? PORT, ...CONNECT } as const;
    note(`connections ${how}`, await perSecond(connect, (rate) => (rate * CONNECT.ms) / 1000));
  }
}
guard.sync(links);
const attachUs = Array.from({ length: 200 }, (_, at) => {
  const link = { ifindex: 5000 + at, addresses: Object.values(addressOf(100 + (at % 100))), extra: [] };
  const before = performance.now();
  guard.attach(link);
  guard.detach(link.ifindex);
  return (performance.now() - before) * 1000;
});
const median = (numbers: readonly number[]): number => quantiles(numbers).p50;
const ratio = (key: string): number =>
  median(
    (figures.get(`${key} with`) ?? []).map((one, at) => one / (figures.get(`${key} without`)?.[at] ?? Number.NaN)),
  );
const rows = [
  ...FAMILIES.map((family) => ({
    what: `bytes a processor second, ${family}: with the guard, of without`,
    value: ratio(`bytes ${family}`),
    least: LEAST,
  })),
  { what: "connections a processor second: with the guard, of without", value: ratio("connections"), least: undefined },
  { what: "guard and release of a dual-stack pod, µs", value: median(attachUs), least: undefined },
];
const isExceeded = ({ value, least = -Infinity }: (typeof rows)[number]): boolean => !(value >= least);
if (values.json)
  console.log(
    JSON.stringify({ name: "source-guard", rows, exceeded: rows.filter(isExceeded).map(({ what }) => what) }),
  );
else
  for (const row of rows)
    console.log(
      `${row.what.padEnd(60)}${row.value.toFixed(3).padStart(10)}${row.least === undefined ? "" : `  at least ${row.least}`}${isExceeded(row) ? "  EXCEEDED" : ""}`,
    );
if (rows.some(isExceeded)) process.exitCode = 1;
