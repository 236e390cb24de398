import { once } from "node:events";
import { createServer, type Server, type Socket } from "node:net";
import { type AbortOptions, Deferred, poll, unlessAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { describeError } from "#base/errors";
import type { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { type NetNsRef, openNetNs } from "#kernel/netns";
import { type IcmpSocket, listenTcp, openIcmpSocket } from "#kernel/socket";
import { connectInside, type Destination, InsideError, requestConnect } from "#lab/inside";
import type { PingSource } from "#lab/ping";
import { formatHostPort } from "#wire/http-connect";

/** The port of numbered connections. */
export const NUMBERED_PORT = 7000;
/** Between two pings of a flow, and between two messages of each side of a connection, in milliseconds. */
const EVERY_MS = 50;
/** An answer that takes longer is lost. */
const ANSWER_MS = 1000;
const CONNECT_MS = 5000;
const MESSAGE_BYTES = 4;
const SEQUENCES = 65_536;

/** A pod that pings, and is pinged. */
export type PingingPod = PingSource & { readonly node: string };

interface Flow {
  readonly name: string;
  readonly to: IpAddress;
  readonly socket: IcmpSocket;
}

/** The pings of a time. */
export interface PingCount {
  readonly sent: number;
  readonly lost: number;
  readonly lostBy: readonly string[];
}

/** Pings every 50 ms between pods of different nodes, in each family, both ways. */
export class PingFlows implements Disposable {
  readonly #sockets: IcmpSocket[] = [];
  readonly #flows: Flow[] = [];
  readonly #timer: NodeJS.Timeout;
  /** Pings without an answer yet, by flow and sequence number. */
  readonly #open = new Map<string, Flow>();
  #sequence = 0;
  #sent = 0;
  #refused: string[] = [];
  #fault: { readonly error: unknown } | undefined;

  /** Throws `KernelError`. */
  constructor(pods: readonly PingingPod[]) {
    try {
      for (const from of pods) this.#join(from, pods);
    } catch (error) {
      this.#close();
      throw error;
    }
    this.#timer = setInterval(() => this.#tick(), EVERY_MS);
  }

  /** The number of pings that are sent every 50 ms. */
  get flows(): number {
    return this.#flows.length;
  }

  /** Pings since the last {@link count}. */
  get sent(): number {
    return this.#sent;
  }

  /** The pings since the last call, once each had its time to be answered. Rejects with the signal's reason. */
  async count(options: AbortOptions): Promise<PingCount> {
    const mine = new Map(this.#open);
    const [sent, refused] = [this.#sent, this.#refused];
    this.#sent = 0;
    this.#refused = [];
    const left = await poll(async () => [...mine].filter(([key]) => this.#open.has(key)), {
      until: (keys) => keys.length === 0,
      everyMs: EVERY_MS,
      deadlineMs: ANSWER_MS,
      signal: options.signal,
      clock: systemClock,
    });
    if (this.#fault !== undefined) throw this.#fault.error;
    for (const [key] of left) this.#open.delete(key);
    // Those of a call before were counted by it.
    const lost = [...left.map(([, { name }]) => name), ...refused];
    const lostBy = [...Map.groupBy(lost, (name) => name)].map(([name, { length }]) => `${name}: ${length} pings lost`);
    return { sent, lost: lost.length, lostBy };
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.#close();
  }

  #join(from: PingingPod, pods: readonly PingingPod[]): void {
    using netns = openNetNs({ path: from.netns });
    for (const family of [4, 6] as const) {
      const targets = pods
        .filter((to) => to.node !== from.node)
        .flatMap((to) => to.addresses.filter((one) => one.family === family).map((address) => ({ to, address })));
      if (targets.length === 0 || !from.addresses.some((one) => one.family === family)) continue;
      const socket = openIcmpSocket(family, { netns });
      this.#sockets.push(socket);
      for (const { to, address } of targets)
        this.#flows.push({ name: `${from.name} -> ${to.name} (${address})`, to: address, socket });
    }
  }

  #tick(): void {
    try {
      this.#receive();
      this.#sequence = (this.#sequence + 1) % SEQUENCES;
      for (const flow of this.#flows) this.#send(flow);
    } catch (error) {
      clearInterval(this.#timer);
      this.#fault = { error };
    }
  }

  #send(flow: Flow): void {
    this.#sent += 1;
    try {
      if (flow.socket.send(flow.to, this.#sequence)) this.#open.set(keyOf(flow.socket, flow.to, this.#sequence), flow);
      else this.#refused.push(flow.name);
    } catch (error) {
      if (!isKernelError(error)) throw error;
      this.#refused.push(`${flow.name}: ${error.message}`);
    }
  }

  #receive(): void {
    for (const socket of this.#sockets)
      for (const { from, sequence } of socket.receive()) this.#open.delete(keyOf(socket, from, sequence));
  }

  #close(): void {
    for (const socket of this.#sockets) socket[Symbol.dispose]();
  }
}

function keyOf({ fd }: IcmpSocket, address: IpAddress, sequence: number): string {
  return `${fd} ${address} ${sequence}`;
}

/** One side of a connection: it sends a number every 50 ms, and ends the connection if a number of the other side is not the next one. */
export class NumberedSide implements Disposable {
  readonly #socket: Socket;
  readonly #timer: NodeJS.Timeout;
  readonly #first = new Deferred();
  readonly #late: NodeJS.Timeout;
  #rest = Buffer.alloc(0);
  #sent = 0;
  #received = 0;
  #lastMs = performance.now();
  #longestGapMs = 0;
  #fault: string | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on("data", (bytes: Buffer) => this.#take(bytes));
    socket.on("error", (error) => this.#fail(describeError(error)));
    socket.on("close", () => this.#fail("it was closed"));
    socket.on("end", () => this.#fail("the other side ended it"));
    this.#timer = setInterval(() => this.#send(), EVERY_MS);
    this.#late = setTimeout(() => this.#fail(`nothing came in ${CONNECT_MS} ms`), CONNECT_MS);
    // A server's side has nobody who waits.
    this.#first.promise.catch(() => undefined);
  }

  /** Resolves with the first number of the other side; rejects with `InsideError` where the connection ends before, or none comes in 5 s. */
  get first(): Promise<void> {
    return this.#first.promise;
  }

  get sent(): number {
    return this.#sent;
  }

  get received(): number {
    return this.#received;
  }

  /** The reason why the connection is no more, or no number came for some time; `undefined` while it lives. */
  get fault(): string | undefined {
    if (this.#fault !== undefined) return this.#fault;
    const quietMs = performance.now() - this.#lastMs;
    return quietMs > CONNECT_MS ? `nothing came for ${Math.round(quietMs)} ms` : undefined;
  }

  get longestGapMs(): number {
    return Math.max(this.#longestGapMs, performance.now() - this.#lastMs);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    clearTimeout(this.#late);
    this.#fault ??= "it was disposed";
    this.#socket.destroy();
  }

  #send(): void {
    const message = Buffer.alloc(MESSAGE_BYTES);
    message.writeUInt32BE(this.#sent);
    this.#sent += 1;
    this.#socket.write(message);
  }

  #take(bytes: Buffer): void {
    const now = performance.now();
    this.#longestGapMs = Math.max(this.#longestGapMs, now - this.#lastMs);
    this.#lastMs = now;
    const all = Buffer.concat([this.#rest, bytes]);
    let at = 0;
    for (; at + MESSAGE_BYTES <= all.length; at += MESSAGE_BYTES) {
      const number = all.readUInt32BE(at);
      if (number !== this.#received) {
        this.#fail(`number ${number} came in place of ${this.#received}`);
        return;
      }
      this.#received += 1;
      clearTimeout(this.#late);
      this.#first.resolve();
    }
    this.#rest = all.subarray(at);
  }

  #fail(why: string): void {
    if (this.#fault !== undefined) return;
    this.#fault = why;
    clearInterval(this.#timer);
    clearTimeout(this.#late);
    this.#first.reject(new InsideError("failed", why));
    this.#socket.destroy();
  }
}

/** A connection with numbered messages both ways. Rejects with `InsideError`, also where no server answers, and with the signal's reason. */
export async function openNumbered(from: NetNsRef, to: Destination, options: AbortOptions): Promise<NumberedSide> {
  return numberedOver(await connectInside(from, to, { ...options, timeoutMs: CONNECT_MS }), options);
}

/** The same through a proxy at the other end of a connection, by CONNECT. */
export async function openNumberedThrough(
  proxy: Socket,
  { address, port }: Destination,
  options: AbortOptions,
): Promise<NumberedSide> {
  const target = formatHostPort({ host: address.toString(), port });
  return numberedOver(await requestConnect(proxy, target, { ...options, timeoutMs: CONNECT_MS }), options);
}

async function numberedOver(socket: Socket, options: AbortOptions): Promise<NumberedSide> {
  const side = new NumberedSide(socket);
  try {
    await unlessAborted(side.first, options);
    return side;
  } catch (error) {
    side[Symbol.dispose]();
    throw error;
  }
}

/** The other sides, on addresses of other namespaces. */
export class NumberedServers implements AsyncDisposable {
  readonly #servers: Server[] = [];
  readonly #sides = new Set<NumberedSide>();

  /** Serves on an address of a namespace until the disposal. Rejects with `KernelError`. */
  async serve(ref: NetNsRef, address: IpAddress): Promise<void> {
    using netns = openNetNs(ref);
    const server = createServer((socket) => {
      const side = new NumberedSide(socket);
      this.#sides.add(side);
      socket.once("close", () => this.#sides.delete(side));
    });
    this.#servers.push(server);
    await once(server.listen({ fd: listenTcp(address, NUMBERED_PORT, { netns }) }), "listening");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = this.#servers.map((server) => once(server, "close"));
    for (const server of this.#servers) server.close();
    for (const side of this.#sides) side[Symbol.dispose]();
    await Promise.all(closed);
  }
}
