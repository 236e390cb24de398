/** The way in which service-sync measures a side: filling its table while another thread sends requests, changing one Service, first packets. */
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { Worker } from "node:worker_threads";
import type { NetNs } from "#kernel/net";
import { firstPackets } from "./service-sync.world.ts";

const LOOP_RESOLUTION_MS = 1;

export interface Quantiles {
  readonly p50: number;
  readonly p99: number;
}

/** The results of one side. */
export interface Sample {
  readonly firstSyncMs: number;
  readonly bytes: number;
  readonly peakMiB: number;
  readonly changeMs: Quantiles;
  /** Absent if the table was not done in time. */
  readonly firstPacketUs: Quantiles | null;
  readonly blockMs: number;
  readonly answerMs: Quantiles;
}

/** The measured side. */
export interface Side {
  readonly netns: NetNs;
  /** The number of Services. */
  readonly size: number;
  /** Makes the table; false if it was stopped. */
  readonly fill: () => Promise<{ readonly bytes: number; readonly isDone: boolean }>;
  /** Changes the endpoint of one Service; turns are numbered from 1. */
  readonly change: (turn: number) => Promise<void>;
  readonly changes: number;
  readonly peakMiB: () => number;
}

/** Measures one side. If its table was not done, one change is tried, and no packet is sent. */
export async function measure({ netns, size, fill, change, changes, peakMiB: peak }: Side): Promise<Sample> {
  const first = await whileAnswering(() => timed(fill));
  const { bytes, isDone } = first.result.result;
  const changeMs = await timedTurns(isDone ? changes : 1, change);
  return {
    firstSyncMs: first.result.ms,
    bytes,
    changeMs,
    firstPacketUs: isDone ? quantiles(await firstPackets(netns, size)) : null,
    peakMiB: peak(),
    blockMs: first.blockMs,
    answerMs: first.answerMs,
  };
}

/** The duration of an operation, in milliseconds. */
export async function timed<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly ms: number }> {
  const startedAt = performance.now();
  const result = await work();
  return { result, ms: performance.now() - startedAt };
}

/** The durations of repeated operations, in milliseconds. */
export async function timedTurns(count: number, work: (turn: number) => Promise<void>): Promise<Quantiles> {
  const took: number[] = [];
  for (let turn = 1; turn <= count; turn += 1) took.push((await timed(() => work(turn))).ms);
  return quantiles(took);
}

/** Answers HTTP while `work` runs, requested by another thread every few milliseconds; also returns the longest block. */
async function whileAnswering<T>(
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly answerMs: Quantiles; readonly blockMs: number }> {
  const server = createServer((_request, response) => response.end("ok"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const asked = await whileAsked(port, { connections: 1, pauseMs: 2 }, async () => {
    const loop = monitorEventLoopDelay({ resolution: LOOP_RESOLUTION_MS });
    loop.enable();
    const result = await work();
    await new Promise((resolve) => setTimeout(resolve, 4 * LOOP_RESOLUTION_MS));
    loop.disable();
    return { result, blockMs: Math.max(0, loop.max / 1e6 - LOOP_RESOLUTION_MS) };
  });
  server.close();
  return { ...asked.result, answerMs: asked.answerMs };
}

/** Another thread requests `/healthz` over kept connections while `work` runs. */
export async function whileAsked<T>(
  port: number,
  load: { readonly connections: number; readonly pauseMs: number },
  work: () => Promise<T>,
): Promise<{ readonly result: T; readonly answerMs: Quantiles; readonly answersPerSecond: number }> {
  const asker = new Worker(new URL("./service-sync.asker.ts", import.meta.url), { workerData: { port, ...load } });
  await once(asker, "message");
  const { result, ms } = await timed(work);
  asker.postMessage("stop");
  const [took] = (await once(asker, "message")) as [number[]];
  return { result, answerMs: quantiles(took), answersPerSecond: took.length / (ms / 1000) };
}

/** Median and percentiles of a list that is not empty. */
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
