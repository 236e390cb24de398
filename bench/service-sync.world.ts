/** What both sides of service-sync share: Services, a namespace with servers in it, figures. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer as createHttpServer } from "node:http";
import { type AddressInfo, createServer, Socket } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Worker } from "node:worker_threads";
import { Cidr, IpAddress } from "#base/ip";
import { type NetNs, openKernel } from "#kernel/net";
import { listenTcp, openTcp } from "#kernel/socket";

export const ENDPOINTS = 10;
export const SERVICE_PORT = 80;
export const TARGET_PORT = 8080;
/** Services whose endpoints really answer. */
const REAL = 100;
const CONNECTS = 400;
const LOOP_RESOLUTION_MS = 1;

export interface Quantiles {
  readonly p50: number;
  readonly p99: number;
}

/** What one side came to. */
export interface Sample {
  readonly firstSyncMs: number;
  readonly bytes: number;
  readonly peakMiB: number;
  readonly changeMs: Quantiles;
  /** Absent where the table was not done in time. */
  readonly firstPacketUs: Quantiles | null;
  readonly blockMs: number;
  readonly answerMs: Quantiles;
}

/** The address of a Service: 172.30.0.1 and on. */
export function clusterIP(service: number): IpAddress {
  return IpAddress.fromValue(4, IpAddress.parse("172.30.0.0").value + BigInt(service + 1));
}

/** Addresses that answer for the first Services, and none for the others; `turn` gives others for the same Service. */
export function endpointAddresses(service: number, turn = 0): IpAddress[] {
  const base =
    service < REAL ? IpAddress.parse("10.180.0.1").value : IpAddress.parse("10.192.0.0").value + BigInt(service * 16);
  return Array.from({ length: ENDPOINTS }, (_, at) =>
    IpAddress.fromValue(4, base + BigInt(at === 0 && turn % 2 === 1 ? ENDPOINTS : at)),
  );
}

/** A namespace where the real endpoints live on loopback. */
export async function openWorld(name: string): Promise<{ readonly netns: NetNs } & AsyncDisposable> {
  const kernel = openKernel();
  const netns = kernel.createNetNs(name);
  using stack = kernel.openStack(netns);
  const lo = stack.links.get({ name: "lo" });
  if (lo === undefined) throw new Error("there is no loopback");
  stack.links.set(lo.index, { up: true });
  for (let at = 0; at <= ENDPOINTS; at += 1) {
    const address = IpAddress.fromValue(4, IpAddress.parse("10.180.0.1").value + BigInt(at));
    stack.addresses.replace({ linkIndex: lo.index, address, prefixLength: 32 });
  }
  stack.routes.replace({ dst: Cidr.parse("0.0.0.0/0"), linkIndex: lo.index, scope: "link" });
  const server = createServer((socket) => socket.on("error", () => socket.destroy()).end("."));
  server.listen({ fd: listenTcp(IpAddress.parse("0.0.0.0"), TARGET_PORT, { netns }) });
  await once(server, "listening");
  return {
    netns,
    [Symbol.asyncDispose]: async () => {
      server.close();
      netns[Symbol.dispose]();
      kernel.deleteNetNs(name);
    },
  };
}

/** From the first packet to the first byte, over Services that answer. */
export async function firstPackets(netns: NetNs): Promise<Quantiles> {
  const took: number[] = [];
  for (let at = 0; at < CONNECTS; at += 1) {
    const socket = new Socket({ fd: openTcp(4, { netns }) });
    const startedAt = performance.now();
    socket.connect({ host: clusterIP(at % REAL).toString(), port: SERVICE_PORT });
    await once(socket, "data", { signal: AbortSignal.timeout(5000) });
    took.push((performance.now() - startedAt) * 1000);
    socket.destroy();
  }
  return quantiles(took);
}

/** Answers HTTP while `work` runs, asked by another thread every few milliseconds; also tells the longest block. */
export async function whileAnswering<T>(
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly answerMs: Quantiles; readonly blockMs: number }> {
  const server = createHttpServer((_request, response) => response.end("ok"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const asker = new Worker(ASKER, { eval: true, workerData: port });
  await once(asker, "message");
  const loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
  loop.enable();
  const result = await work();
  await new Promise((resolve) => setTimeout(resolve, 4 * LOOP_RESOLUTION_MS));
  loop.disable();
  asker.postMessage("stop");
  const [took] = (await once(asker, "message")) as [number[]];
  server.close();
  return { result, answerMs: quantiles(took), blockMs: Math.max(0, loop.max / 1e6 - LOOP_RESOLUTION_MS) };
}

const ASKER = `
const http = require("node:http"), { parentPort, workerData } = require("node:worker_threads");
const took = []; let stop = false; const agent = new http.Agent({ keepAlive: true });
parentPort.on("message", () => { stop = true; });
const ask = () => new Promise((resolve, reject) => http.get({ port: workerData, host: "127.0.0.1", path: "/healthz", agent }, (answer) => answer.resume().on("end", resolve)).on("error", reject));
(async () => {
  await ask(); parentPort.postMessage("ready");
  while (!stop) { const at = performance.now(); await ask(); took.push(performance.now() - at); await new Promise((resolve) => setTimeout(resolve, 2)); }
  parentPort.postMessage(took); agent.destroy(); parentPort.close();
})();`;

/** Of a list that is not empty. */
export function quantiles(values: readonly number[]): Quantiles {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (part: number): number =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))] ?? Number.NaN;
  return { p50: at(0.5), p99: at(0.99) };
}

/** The peak of this process, or of another. */
export function peakMiB(pid: number | "self" = "self"): number {
  return Number(/^VmHWM:\s*(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0) / 1024;
}
