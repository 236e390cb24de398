import { Worker } from "node:worker_threads";
import { Deferred } from "#base/async";
import { decodeAddress } from "#kernel/address";
import { isKernelError, KernelError } from "#kernel/errors";
import { bind, C, close, eventfd, setsockopt, socket, write } from "#kernel/ffi";
import { decodeLink } from "#kernel/link";
import { decodeMessages, NETLINK, RTM } from "#kernel/netlink";
import { inNetNs, type NetNs } from "#kernel/netns";
import { decodeRoute } from "#kernel/route";
import { decodeRule } from "#kernel/rule";
import type { FromWorker, MonitorEvent, MonitorTopics, ToWorker, WorkerInit } from "./types.ts";

/** Bits of RTMGRP_* and RTNLGRP_IPV6_RULE of include/uapi/linux/rtnetlink.h. */
const GROUPS = { links: 0x1, addresses: 0x10 | 0x100, routes: 0x40 | 0x400, rules: 0x80 | 0x4_0000 } as const;
const TOPICS = ["links", "addresses", "routes", "rules"] as const;
/** Events that the kernel may queue for us before it drops: some 20,000 routes. */
const RECEIVE_QUEUE_BYTES = 8 << 20;

interface Watch {
  readonly fd: number;
  readonly listener: (event: MonitorEvent) => void;
  removed: boolean;
  readonly closed: Deferred;
}

/**
 * Watches the links, addresses, routes and rules of any number of namespaces through one Worker, which polls while the main
 * thread works. Whoever makes it disposes it. It does not keep the process alive.
 */
export class Monitors implements AsyncDisposable {
  readonly #wakeFd = eventfd();
  readonly #inFlight = new Int32Array(new SharedArrayBuffer(4));
  readonly #watches = new Map<number, Watch>();
  readonly #worker: Worker;
  readonly #exited = new Deferred();
  readonly #onFailure: (error: KernelError) => void;
  #nextId = 1;
  #stopped = false;
  #released = false;

  /** `onFailure` is told when events can no longer be had; the watches are silent from then on. */
  constructor(options: { readonly onFailure: (error: KernelError) => void }) {
    this.#onFailure = options.onFailure;
    const init: WorkerInit = { wakeFd: this.#wakeFd, inFlight: this.#inFlight.buffer };
    this.#worker = new Worker(workerUrl(), { workerData: init });
    this.#worker.unref();
    this.#worker.on("message", (message: FromWorker) => this.#take(message));
    this.#worker.on("error", (cause) =>
      options.onFailure(new KernelError("failed", "The monitor's Worker failed", { cause })),
    );
    this.#worker.on("exit", () => this.#exited.resolve());
  }

  /**
   * Calls `listener` for every event from now on. Events are level hints: after `resync`, and at the start, list the
   * state. A listener that throws ends the process, as any uncaught error does. Disposing ends the watch. Throws
   * {@link KernelError}.
   */
  watch(ns: Pick<NetNs, "fd">, topics: MonitorTopics, listener: (event: MonitorEvent) => void): AsyncDisposable {
    if (this.#stopped) throw new KernelError("failed", "Cannot watch: the monitors are disposed");
    const fd = openMulticast(ns, topics);
    const id = this.#nextId;
    this.#nextId += 1;
    const watch: Watch = { fd, listener, removed: false, closed: new Deferred() };
    this.#watches.set(id, watch);
    this.#order({ kind: "add", id, fd });
    return {
      [Symbol.asyncDispose]: async () => {
        if (!watch.removed) this.#order({ kind: "remove", id });
        watch.removed = true;
        await this.#awaited(watch.closed);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#stopped) {
      this.#stopped = true;
      this.#order({ kind: "stop" });
    }
    await this.#awaited(this.#exited);
    for (const id of [...this.#watches.keys()]) this.#close(id);
    if (!this.#released) close(this.#wakeFd);
    this.#released = true;
  }

  /** Waits for the Worker, which keeps nobody alive else: a process that has nothing more to do would end in the middle. */
  async #awaited({ promise }: Deferred): Promise<void> {
    this.#worker.ref();
    await promise;
    this.#worker.unref();
  }

  /** The Worker looks for orders each time its poll ends; the eventfd ends it at once. */
  #order(order: ToWorker): void {
    this.#worker.postMessage(order);
    write(this.#wakeFd, new Uint8Array(new BigUint64Array([1n]).buffer), "wake the monitor");
  }

  #take(message: FromWorker): void {
    Atomics.sub(this.#inFlight, 0, 1);
    Atomics.notify(this.#inFlight, 0);
    const watch = this.#watches.get(message.id);
    if (watch === undefined) return;
    if (message.kind === "removed" || message.kind === "failed") this.#close(message.id);
    if (message.kind === "failed") this.#onFailure(new KernelError("failed", `Cannot watch: ${message.message}`));
    if (watch.removed) return;
    if (message.kind === "overrun") watch.listener({ kind: "resync" });
    if (message.kind !== "datagram") return;
    for (const event of decodeEvents(Buffer.from(message.bytes))) watch.listener(event);
  }

  #close(id: number): void {
    const watch = this.#watches.get(id);
    if (watch === undefined) return;
    this.#watches.delete(id);
    close(watch.fd);
    watch.closed.resolve();
  }
}

/** The events in one datagram. Throws {@link KernelError} `invalid` for malformed bytes. */
export function* decodeEvents(datagram: Buffer): Generator<MonitorEvent> {
  for (const { type, payload } of decodeMessages(datagram)) {
    if (type === RTM.NEWLINK || type === RTM.DELLINK) {
      yield { kind: "link", op: type === RTM.NEWLINK ? "new" : "delete", link: decodeLink(payload) };
    } else if (type === RTM.NEWADDR || type === RTM.DELADDR) {
      const address = decodeAddress(payload);
      if (address !== undefined) yield { kind: "address", op: type === RTM.NEWADDR ? "new" : "delete", address };
    } else if (type === RTM.NEWROUTE || type === RTM.DELROUTE) {
      const route = decodeRoute(payload);
      if (route !== undefined) yield { kind: "route", op: type === RTM.NEWROUTE ? "new" : "delete", route };
    } else if (type === RTM.NEWRULE || type === RTM.DELRULE) {
      const rule = decodeRule(payload);
      if (rule !== undefined) yield { kind: "rule", op: type === RTM.NEWRULE ? "new" : "delete", rule };
    }
  }
}

function openMulticast(ns: Pick<NetNs, "fd">, topics: MonitorTopics): number {
  let groups = 0;
  for (const topic of TOPICS) if (topics[topic] === true) groups |= GROUPS[topic];
  const fd = inNetNs(ns, () => socket(C.AF_NETLINK, C.SOCK_RAW | C.SOCK_NONBLOCK, NETLINK.ROUTE));
  try {
    try {
      setsockopt(fd, C.SOL_SOCKET, C.SO_RCVBUFFORCE, RECEIVE_QUEUE_BYTES);
    } catch (error) {
      if (!isKernelError(error, "not-permitted")) throw error;
      setsockopt(fd, C.SOL_SOCKET, C.SO_RCVBUF, RECEIVE_QUEUE_BYTES); // capped by net.core.rmem_max
    }
    const address = new DataView(new ArrayBuffer(12)); // struct sockaddr_nl
    address.setUint16(0, C.AF_NETLINK, true);
    address.setUint32(8, groups, true);
    bind(fd, new Uint8Array(address.buffer), "join the kernel's event groups");
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** From sources the file beside this one; in the bundle an entry point of its own. */
function workerUrl(): URL {
  return new URL(import.meta.url.endsWith(".ts") ? "./worker.ts" : "./monitor-worker.mjs", import.meta.url);
}
