import { connect, isIP, type Socket } from "node:net";
import { withDeadline } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { type Names, NamesError } from "#base/names";
import type { HostPort } from "#wire/http-connect";
import { formatHostPort } from "#wire/http-connect";
import { goErrorText } from "./go-errors.ts";

/** After this time without an answer the next address is tried in parallel, milliseconds (RFC 8305 section 5). */
const ATTEMPT_DELAY_MS = 250;
/** Maximum of addresses of a name that are tried. */
const MAX_ADDRESSES = 16;

/** Whether an address may be connected to. */
export type AddressFilter = (address: IpAddress, port: number) => boolean;

export type DialErrorCode = "timeout" | "failed";

/** A failed dial. The message is in Go's words: `dial tcp 10.0.0.1:80: connect: connection refused`. */
export class DialError extends ExpectedError<DialErrorCode> {
  override readonly name = "DialError";
}

/**
 * Connects to a host and port. Resolves a name and tries its addresses, IPv4 and IPv6 alternately, the next address in parallel with the
 * earlier ones if those take long, all within `timeoutMs`. Resolves with a paused socket that can be half-closed. Rejects with {@link
 * DialError}; an abort rejects with the signal's reason. no socket stays open.
 */
export async function dialTcp(
  target: HostPort,
  options: {
    readonly names: Names;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
    readonly allowed?: AddressFilter;
  },
): Promise<Socket> {
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

/** The first socket that connects; the others are destroyed. Rejects with the first failure once all have failed. */
function race(addresses: readonly string[], port: number, signal: AbortSignal): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const sockets = new Set<Socket>();
  let timer: NodeJS.Timeout | undefined;
  let next = 0;
  let firstError: unknown;
  const onAbort = (): void => fail(signal.reason);
  const settle = (): void => {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  };
  const fail = (error: unknown): void => {
    settle();
    for (const socket of sockets) socket.destroy();
    reject(error);
  };
  const attempt = (): void => {
    clearTimeout(timer);
    const address = addresses[next];
    next += 1;
    if (address === undefined) {
      if (sockets.size === 0) fail(firstError ?? new DialError("failed", "no such host"));
      return;
    }
    const socket = connect({ host: address, port, allowHalfOpen: true });
    sockets.add(socket);
    const onError = (error: Error): void => {
      firstError ??= error;
      sockets.delete(socket);
      attempt();
    };
    socket.once("error", onError);
    socket.once("connect", () => {
      socket.off("error", onError);
      sockets.delete(socket);
      settle();
      for (const other of sockets) other.destroy();
      socket.pause();
      resolve(socket);
    });
    if (next < addresses.length) timer = setTimeout(attempt, ATTEMPT_DELAY_MS);
  };
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  else attempt();
  return promise;
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
