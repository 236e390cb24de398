/**
 * A mesh of pings: real ICMP echoes from every pod's own namespace, without a process for each.
 *
 * Owns: sockets in pods' namespaces for the length of one run. Does not know: Kubernetes, routes of packets.
 */
import { type AbortOptions, sleep } from "#base/async";
import { systemClock } from "#base/clock";
import type { IpAddress, IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { type NetNs, openNetNs } from "#kernel/netns";
import { type IcmpSocket, openIcmpSocket, whenReadable } from "#kernel/socket";

/** A target of pings. */
export interface PingTarget {
  readonly name: string;
  readonly addresses: readonly IpAddress[];
}

/** A source of pings; it is also a target. */
export interface PingSource extends PingTarget {
  /** Path of its network namespace. */
  readonly netns: string;
}

/** One pair without an answer. */
export interface Unanswered {
  readonly from: string;
  readonly to: string;
  readonly address: string;
  /** The kernel's error, if it refused to send. */
  readonly reason: string;
}

export interface PingResult {
  /** Pairs of source and address, each counted once even if it was tried several times. */
  readonly sent: number;
  readonly answered: number;
  readonly unanswered: readonly Unanswered[];
}

/** Sockets open at once: sources are handled in groups of this size. */
const GROUP = 64;
/** Echoes in flight at once, so that queues do not overflow. */
const WINDOW = 256;

/**
 * Each source pings all others and all further targets in each family that it has. A pair counts as answered when one
 * echo came back within `deadlineMs` of its group's start; it is tried again every second until then.
 */
export async function pingMesh(
  sources: readonly PingSource[],
  targets: readonly PingTarget[],
  options: AbortOptions & { readonly deadlineMs: number; readonly onProgress?: (done: number, total: number) => void },
): Promise<PingResult> {
  const unanswered: Unanswered[] = [];
  let sent = 0;
  for (let at = 0; at < sources.length; at += GROUP) {
    const group = sources.slice(at, at + GROUP);
    const pairs = group.flatMap((source) => pairsOf(source, [...sources, ...targets]));
    sent += pairs.length;
    unanswered.push(...(await pingPairs(pairs, options)));
    options.onProgress?.(Math.min(at + GROUP, sources.length), sources.length);
  }
  return { sent, answered: sent - unanswered.length, unanswered };
}

interface Pair {
  readonly source: PingSource;
  readonly target: PingTarget;
  readonly address: IpAddress;
}

function pairsOf(source: PingSource, all: readonly PingTarget[]): Pair[] {
  const families = new Set<IpFamily>(source.addresses.map((address) => address.family));
  return all
    .filter((target) => target !== source)
    .flatMap((target) =>
      target.addresses
        .filter((address) => families.has(address.family))
        .map((address) => ({ source, target, address })),
    );
}

async function pingPairs(
  pairs: readonly Pair[],
  options: AbortOptions & { readonly deadlineMs: number },
): Promise<Unanswered[]> {
  using sockets = new Sockets();
  const waiting = new Map(pairs.map((pair) => [`${pair.source.netns} ${pair.address}`, { pair, reason: "no answer" }]));
  const deadline = performance.now() + options.deadlineMs;
  while (waiting.size > 0 && performance.now() < deadline) {
    options.signal?.throwIfAborted();
    const round = [...waiting.values()];
    for (let at = 0; at < round.length; at += WINDOW) {
      for (const entry of round.slice(at, at + WINDOW)) entry.reason = sockets.send(entry.pair) ?? "no answer";
      sockets.drain(waiting);
    }
    const roundEnd = Math.min(deadline, performance.now() + 1000);
    while (waiting.size > 0 && performance.now() < roundEnd) {
      await whenReadable(sockets.all, {
        atMostMs: Math.max(1, roundEnd - performance.now()),
        signal: options.signal,
        clock: systemClock,
      });
      sockets.drain(waiting);
      if (sockets.all.length === 0) await sleep(Math.max(1, roundEnd - performance.now()), options);
    }
  }
  return [...waiting.values()].map(({ pair, reason }) => ({
    from: pair.source.name,
    to: pair.target.name,
    address: pair.address.toString(),
    reason,
  }));
}

/** One socket for each source and family of a group. */
class Sockets implements Disposable {
  readonly #sockets = new Map<string, { readonly socket: IcmpSocket; readonly netns: string }>();

  get all(): IcmpSocket[] {
    return [...this.#sockets.values()].map(({ socket }) => socket);
  }

  /** The reason when the kernel refuses to send. */
  send({ source, address }: Pair): string | undefined {
    try {
      return this.#socketOf(source.netns, address.family).send(address, 1) ? undefined : "send queue full";
    } catch (error) {
      if (!isKernelError(error)) throw error;
      return error.message;
    }
  }

  drain(waiting: Map<string, unknown>): void {
    for (const { socket, netns } of this.#sockets.values()) {
      for (const { from } of socket.receive()) waiting.delete(`${netns} ${from}`);
    }
  }

  [Symbol.dispose](): void {
    for (const { socket } of this.#sockets.values()) socket[Symbol.dispose]();
    this.#sockets.clear();
  }

  #socketOf(path: string, family: IpFamily): IcmpSocket {
    const key = `${path} ${family}`;
    const known = this.#sockets.get(key);
    if (known !== undefined) return known.socket;
    using netns: NetNs = openNetNs({ path });
    const socket = openIcmpSocket(family, { netns });
    this.#sockets.set(key, { socket, netns: path });
    return socket;
  }
}
