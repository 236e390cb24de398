import type { Server } from "node:net";
import { WorkerError } from "./errors.ts";
import type { FromWorker, Order, ToWorker } from "./messages.ts";
import { FIRST_DESCRIPTOR, WORKER_VARIABLE } from "./messages.ts";
import { descriptorOf } from "./socket-number.ts";

/** A worker, as its own process sees itself. */
export interface Worker {
  /** From 1 on. */
  readonly index: number;
  readonly count: number;
  /** The descriptor that the leader has passed at this position of `descriptors`. */
  descriptor(at: number): number;
  /** Aborts at the order `end`. */
  readonly signal: AbortSignal;
  /** Aborts at the order `hurry`. */
  readonly hurry: AbortSignal;
  /** Calls the handler at each order `reload`, and at once if one has come before. */
  onReload(handler: () => void): void;
  /** Answers a question of the leader. The answer must be a value of JSON. A rejection ends the process. */
  answer(question: string, answer: () => unknown | Promise<unknown>): void;
  /** Calls the handler with each descriptor of {@link WorkerGroup.pass}, which is open during the call: the handler duplicates it. */
  onListener(handler: (fd: number) => void): void;
  /** Tells the leader that this worker does its work. */
  started(): void;
  /** Tells the other workers whether this one can serve clients. */
  reportServing(canServe: boolean): void;
  /** Calls the handler when the first other worker can serve clients, at once if one can already, and when the last one no longer can. */
  onOthers(handler: (canServe: boolean) => void): void;
}

/**
 * The worker that this process is; `undefined` if it is none. The process ends with code 1 when its leader is gone, however that ended. Call it
 * once.
 */
export function thisWorker(): Worker | undefined {
  const [, index, count] = /^(\d+)\/(\d+)$/.exec(process.env[WORKER_VARIABLE] ?? "") ?? [];
  if (index === undefined || process.send === undefined) return undefined;
  // A process that this one starts is no worker.
  delete process.env[WORKER_VARIABLE];
  const ends = { end: new AbortController(), hurry: new AbortController() };
  const answers = new Map<string, () => unknown | Promise<unknown>>();
  let reload: (() => void) | undefined;
  let hasMissedReload = false;
  let onOthers: (canServe: boolean) => void = () => undefined;
  let canOthersServe = false;
  let onListener: (fd: number) => void = () => undefined;
  let isServing = false;
  const obey = (order: Order): void => {
    if (order !== "reload") ends[order].abort(new DOMException(`the leader's order: ${order}`, "AbortError"));
    else if (reload === undefined) hasMissedReload = true;
    else reload();
  };
  process.once("disconnect", () => process.exit(1));
  process.on("message", (message: ToWorker, handle: unknown) => {
    if (message.kind === "order") obey(message.order);
    else if (message.kind === "listener") {
      // Node.js has made a server of it, which has accepted nobody yet.
      const server = handle as Server;
      onListener(receivedDescriptor(message.socket));
      server.close();
    } else if (message.kind === "others") {
      canOthersServe = message.canServe;
      onOthers(canOthersServe);
    } else void reply(message.question, answers.get(message.question));
  });
  // The work keeps the process alive, not the channel.
  process.channel?.unref();
  return {
    index: Number(index),
    count: Number(count),
    descriptor: (at) => FIRST_DESCRIPTOR + at,
    signal: ends.end.signal,
    hurry: ends.hurry.signal,
    onReload: (handler) => {
      reload = handler;
      if (hasMissedReload) handler();
      hasMissedReload = false;
    },
    answer: (question, answer) => void answers.set(question, answer),
    onListener: (handler) => {
      onListener = handler;
    },
    started: () => send({ kind: "started" }),
    reportServing: (canServe) => {
      if (canServe !== isServing) send({ kind: "serving", canServe });
      isServing = canServe;
    },
    onOthers: (handler) => {
      onOthers = handler;
      // A leader says it as soon as this process has started, which takes longer.
      if (canOthersServe) handler(true);
    },
  };
}

/** The descriptor of a socket that the leader has passed. Without one this worker would serve nobody, so that the error ends it. */
function receivedDescriptor(socket: string): number {
  const fd = descriptorOf(socket);
  if (fd === undefined)
    throw new WorkerError("ended", `the leader has passed ${socket}, which this process does not have`);
  return fd;
}

async function reply(question: string, answer: (() => unknown | Promise<unknown>) | undefined): Promise<void> {
  send({ kind: "answer", question, answer: await answer?.() });
}

/** A leader that is gone ends this process, so nobody needs the error. */
function send(message: FromWorker): void {
  process.send?.(message, undefined, {}, () => undefined);
}
