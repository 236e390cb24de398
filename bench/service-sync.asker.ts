/**
 * The thread that requests `/healthz` while service-sync measures. It has no HTTP client, because that would take most of the measured
 * time.
 */
import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as pause } from "node:timers/promises";
import { parentPort, workerData } from "node:worker_threads";

const { port, connections, pauseMs } = workerData as {
  readonly port: number;
  readonly connections: number;
  readonly pauseMs: number;
};
const REQUEST = Buffer.from("GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n");
const HEAD_END = "\r\n\r\n";
const took: number[] = [];
let isStopped = false;

/** Sends requests repeatedly over one connection; the first answer is not counted. */
async function ask(onReady: () => void): Promise<void> {
  const socket = connect({ host: "127.0.0.1", port, noDelay: true });
  await once(socket, "connect");
  let answered = Promise.withResolvers<void>();
  let text = "";
  socket.on("data", (bytes: Buffer) => {
    text += bytes.toString("latin1");
    const end = text.indexOf(HEAD_END);
    const length = /content-length: (\d+)/i.exec(text)?.[1];
    // Without a Content-Length, Node writes one chunk and the end chunk.
    const isWhole = length === undefined ? text.endsWith("0\r\n\r\n") : text.length >= end + 4 + Number(length);
    if (end < 0 || !isWhole) return;
    text = "";
    answered.resolve();
  });
  socket.on("error", (error) => answered.reject(error));
  for (let turn = 0; !isStopped; turn += 1) {
    const startedAt = performance.now();
    answered = Promise.withResolvers();
    socket.write(REQUEST);
    await answered.promise;
    if (turn === 0) onReady();
    else took.push(performance.now() - startedAt);
    if (pauseMs > 0) await pause(pauseMs);
  }
  socket.destroy();
}

parentPort?.on("message", () => {
  isStopped = true;
});
let ready = 0;
const asking = Array.from({ length: connections }, () =>
  ask(() => {
    ready += 1;
    if (ready === connections) parentPort?.postMessage("ready");
  }),
);
await Promise.all(asking);
parentPort?.postMessage(took);
parentPort?.close();
