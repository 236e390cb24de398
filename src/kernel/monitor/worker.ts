/**
 * The body of the monitor's Worker: polls netlink sockets that the main thread made, and passes on what they receive.
 * It never enters a namespace. An entry point of its own in the bundle (`monitor-worker.js`).
 */
import { type MessagePort, parentPort, receiveMessageOnPort, workerData } from "node:worker_threads";
import { describeError } from "#base/errors";
import { isKernelError } from "#kernel/errors";
import { C, pollReadable, read, recv } from "#kernel/ffi";
import { type FromWorker, MAX_IN_FLIGHT, type ToWorker, type WorkerInit } from "./types.ts";

/** Ends a blocking poll now and then, so that a process that exits without saying so need not wait longer. */
const POLL_MS = 250;
const BUFFER_BYTES = 64 << 10;

/** Runs until told to stop. */
function serve(port: MessagePort, init: WorkerInit): void {
  const inFlight = new Int32Array(init.inFlight);
  const sockets = new Map<number, number>();
  const buffer = Buffer.alloc(BUFFER_BYTES);
  const wakeUps = new Uint8Array(8);
  const post = (message: FromWorker): void => {
    Atomics.add(inFlight, 0, 1);
    port.postMessage(message);
  };
  for (;;) {
    if (!takeOrders(port, sockets, post)) return;
    if (Atomics.load(inFlight, 0) >= MAX_IN_FLIGHT) {
      Atomics.wait(inFlight, 0, Atomics.load(inFlight, 0), POLL_MS);
      continue;
    }
    const ready = new Set(pollReadable([init.wakeFd, ...sockets.values()], POLL_MS));
    // Before orders are taken, so that none is missed; unread, it would end every poll at once.
    if (ready.has(init.wakeFd)) read(init.wakeFd, wakeUps, "read the monitor's wake-ups");
    for (const [id, fd] of sockets) if (ready.has(fd)) readOne(id, fd, buffer, post, sockets);
  }
}

/** False when it is time to stop. */
function takeOrders(port: MessagePort, sockets: Map<number, number>, post: (message: FromWorker) => void): boolean {
  for (;;) {
    const order = receiveMessageOnPort(port)?.message as ToWorker | undefined;
    if (order === undefined) return true;
    if (order.kind === "stop") return false;
    if (order.kind === "add") sockets.set(order.id, order.fd);
    else if (sockets.delete(order.id)) post({ kind: "removed", id: order.id });
  }
}

function readOne(
  id: number,
  fd: number,
  buffer: Buffer,
  post: (message: FromWorker) => void,
  sockets: Map<number, number>,
): void {
  try {
    const length = recv(fd, buffer, C.MSG_DONTWAIT, "receive kernel events");
    if (length === undefined) return;
    if (length > buffer.length) post({ kind: "overrun", id });
    else post({ kind: "datagram", id, bytes: Uint8Array.from(buffer.subarray(0, length)) });
  } catch (error) {
    // ENOBUFS: the kernel dropped events because we were too slow.
    if (isKernelError(error) && error.errno === "ENOBUFS") post({ kind: "overrun", id });
    else {
      sockets.delete(id);
      post({ kind: "failed", id, message: describeError(error) });
    }
  }
}

if (parentPort !== null) serve(parentPort, workerData as WorkerInit);
