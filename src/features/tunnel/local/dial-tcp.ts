import { isIP } from "node:net";
import { withDeadline } from "#base/async";
import type { ByteStream } from "#base/byte-stream";
import { describeError, ExpectedError } from "#base/errors";
import { IpAddress, unmapped } from "#base/ip";
import { type Names, NamesError } from "#base/names";
import { epollStreamsFault, type TcpStreams, tcpStreams } from "#kernel/reactor";
import type { HostPort } from "#wire/http-connect";
import { formatHostPort } from "#wire/http-connect";
import { goErrorText } from "./go-errors.ts";

/** After this time without an answer the next address is tried in parallel, milliseconds (RFC 8305 section 5). */
const ATTEMPT_DELAY_MS = 250;
/** Maximum of addresses of a name that are tried. */
const MAX_ADDRESSES = 16;

/** Maximum of one read, in bytes: a source is read little further than its link takes. */
const READ_BYTES = 128 * 1024;

/** Returns true if an address may be connected to. */
export type AddressFilter = (address: IpAddress, port: number) => boolean;

export type DialErrorCode = "timeout" | "failed";

/** A failed dial. The message is in Go's words: `dial tcp 10.0.0.1:80: connect: connection refused`. */
export class DialError extends ExpectedError<DialErrorCode> {
  override readonly name = "DialError";
}

/**
 * Connects to a host and port. Resolves a name and tries its addresses, IPv4 and IPv6 alternately, the next address in parallel with the
 * earlier ones if those take long, all within `timeoutMs`. Resolves with a paused stream. Rejects with {@link DialError}; an abort rejects
 * with the signal's reason. No socket stays open.
 */
export async function dialTcp(
  target: HostPort,
  options: {
    readonly names: Names;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
    readonly allowed?: AddressFilter;
  },
): Promise<ByteStream> {
  const { names, signal, timeoutMs, allowed } = options;
  let isLate = false;
  try {
    // The timer ends with the dial. Timers of AbortSignal.timeout live for their whole time: a busy agent would have thousands.
    return await withDeadline(
      timeoutMs,
      async (within) => {
        within.addEventListener("abort", () => (isLate = true), { once: true });
        return race(permitted(await addressesOf(target, names, within), target.port, allowed), target.port, within);
      },
      { signal },
    );
  } catch (error) {
    signal.throwIfAborted();
    const where = `dial tcp ${formatHostPort(target)}`;
    if (isLate) throw new DialError("timeout", `${where}: i/o timeout`, { cause: error });
    throw new DialError("failed", `${where}: ${failureText(error)}`, { cause: error });
  }
}

async function addressesOf({ host }: HostPort, names: Names, signal: AbortSignal): Promise<readonly string[]> {
  if (isIP(host) !== 0) return [host];
  const found = await names.resolve(host, { signal });
  const four = found.filter(({ family }) => family === 4);
  const six = found.filter(({ family }) => family === 6);
  const [first, second] = found[0]?.family === 6 ? [six, four] : [four, six];
  const order = Array.from({ length: Math.max(first.length, second.length) }, (_, at) => [first[at], second[at]]);
  return order
    .flat()
    .flatMap((entry) => (entry === undefined ? [] : [entry.toString()]))
    .slice(0, MAX_ADDRESSES);
}

/** The addresses that the filter allows. The filter applies to the addresses that a name resolves to. */
function permitted(addresses: readonly string[], port: number, allowed: AddressFilter | undefined): readonly string[] {
  if (allowed === undefined) return addresses;
  const left = addresses.filter((text) => {
    const address = IpAddress.tryParse(text);
    return address !== undefined && allowed(address, port);
  });
  if (left.length === 0) throw new DialError("failed", "destination not allowed");
  return left;
}

let streams: TcpStreams | undefined;

/** The streams of the reactor, where the runtime has what they need. */
function ownStreams(): TcpStreams {
  streams ??= tcpStreams(epollStreamsFault() === undefined ? "epoll" : "node");
  return streams;
}

async function connect(text: string, port: number, signal: AbortSignal): Promise<ByteStream> {
  const address = IpAddress.tryParse(text);
  if (address === undefined) throw new DialError("failed", "no such host");
  // An IPv4-mapped address stands for the IPv4 one; sockets of IPv6 alone do not reach it.
  return ownStreams().connect(
    { address: unmapped(address), port },
    { signal, losesWhilePaused: true, readBytes: READ_BYTES },
  );
}

/** The first stream that connects; the others are abandoned. Rejects with the first failure once all have failed. */
function race(addresses: readonly string[], port: number, signal: AbortSignal): Promise<ByteStream> {
  const [only] = addresses;
  if (only === undefined) throw new DialError("failed", "no such host");
  return addresses.length === 1 ? connect(only, port, signal) : raceSeveral(addresses, port, signal);
}

async function raceSeveral(addresses: readonly string[], port: number, signal: AbortSignal): Promise<ByteStream> {
  const losers = new AbortController();
  const all = AbortSignal.any([signal, losers.signal]);
  const { promise, resolve, reject } = Promise.withResolvers<ByteStream>();
  let timer: NodeJS.Timeout | undefined;
  let next = 0;
  let pending = 0;
  let hasWinner = false;
  let firstError: unknown;
  const attempt = (): void => {
    clearTimeout(timer);
    const address = addresses[next];
    next += 1;
    if (address === undefined) {
      if (pending === 0) reject(firstError);
      return;
    }
    pending += 1;
    connect(address, port, all).then(
      (stream) => {
        if (hasWinner) stream.destroy();
        hasWinner = true;
        resolve(stream);
      },
      (error: unknown) => {
        firstError ??= error;
        pending -= 1;
        if (!all.aborted) attempt();
        else if (pending === 0) reject(firstError);
      },
    );
    if (next < addresses.length) timer = setTimeout(attempt, ATTEMPT_DELAY_MS);
  };
  attempt();
  try {
    return await promise;
  } finally {
    clearTimeout(timer);
    losers.abort();
  }
}

function failureText(error: unknown): string {
  if (error instanceof NamesError) {
    return error.code === "not-found"
      ? "lookup: no such host"
      : `lookup: temporary failure in name resolution: ${error.message}`;
  }
  const text = goErrorText(error);
  return text === undefined ? describeError(error) : `connect: ${text}`;
}
