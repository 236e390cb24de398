import { Resolver } from "node:dns/promises";
import { request as httpRequest } from "node:http";
import { Socket } from "node:net";
import { connect as tlsConnect } from "node:tls";
import { unlessAborted, withDeadline } from "#base/async";
import { describeError } from "#base/errors";
import { IpAddress } from "#base/ip";
import type { ProbeTarget, Uplink } from "#base/uplink-model";
import { isKernelError } from "#kernel/errors";
import { openTcp } from "#kernel/socket";

/** The outcome of a probe. `skipped`: the probe is not possible on this uplink, which is not evidence. */
export type ProbeOutcome =
  | { readonly kind: "ok" }
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "skipped"; readonly reason: string };

/** Sends one probe over one uplink, and no packet over another uplink. */
export interface Prober {
  /** Never rejects; an aborted signal soon gives `skipped`. */
  probe(
    uplink: Uplink,
    target: ProbeTarget,
    options: { readonly timeoutMs: number; readonly signal: AbortSignal },
  ): Promise<ProbeOutcome>;
}

/** The probe is not possible on this uplink. */
class Skip extends Error {}

/**
 * The real prober: every socket is bound to an address of the uplink. `mark`, read for each probe, keeps transparent mode from redirecting
 * our own probes.
 */
export function openProber(options: { readonly mark?: () => number | undefined } = {}): Prober {
  return {
    async probe(uplink, target, { timeoutMs, signal }) {
      const time = { isUp: false };
      const work = async (inner: AbortSignal): Promise<void> => {
        inner.addEventListener("abort", () => {
          time.isUp = true;
        });
        await send(uplink, target, { signal: inner, ...options });
      };
      try {
        await withDeadline(timeoutMs, work, { signal });
        return { kind: "ok" };
      } catch (error) {
        if (error instanceof Skip) return { kind: "skipped", reason: error.message };
        if (signal.aborted) return { kind: "skipped", reason: "the probe is no longer wanted" };
        // If the deadline aborts an operation, that operation fails with its own error.
        return { kind: "failed", reason: time.isUp ? "timeout" : reasonOf(error) };
      }
    },
  };
}

interface SendOptions {
  readonly signal: AbortSignal;
  readonly mark?: () => number | undefined;
}

function send(uplink: Uplink, target: ProbeTarget, options: SendOptions): Promise<void> {
  switch (target.type) {
    case "tcp":
      return handshake(uplink, target.host, target.port, options);
    case "http":
      return fetchStatus(uplink, target, options);
    case "dns":
      return askServer(uplink, target.name, options);
  }
}

async function handshake(uplink: Uplink, host: string, port: number, options: SendOptions): Promise<void> {
  const socket = await connect(uplink, host, port, options);
  socket.destroy();
}

async function fetchStatus(
  uplink: Uplink,
  target: Extract<ProbeTarget, { type: "http" }>,
  options: SendOptions,
): Promise<void> {
  const url = new URL(target.url);
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const isTls = url.protocol === "https:";
  const socket = await connect(uplink, host, Number(url.port || (isTls ? 443 : 80)), options);
  const named = IpAddress.tryParse(host) === undefined ? { servername: host } : {};
  const stream = isTls ? tlsConnect({ socket, ...named }) : socket;
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  // The listener also stays after the answer: an error without a listener would end the process.
  stream.on("error", reject);
  const request = httpRequest({
    createConnection: () => stream,
    path: `${url.pathname}${url.search}`,
    headers: { host: url.host, connection: "close" },
    signal: options.signal,
  });
  request.on("error", reject);
  request.once("response", (response) => resolve(response.statusCode ?? 0));
  request.end();
  try {
    const status = await promise;
    const isWanted = target.status === undefined ? status >= 200 && status < 400 : status === target.status;
    if (!isWanted) throw new Error(`status ${status}`);
  } finally {
    request.destroy();
    stream.destroy();
    socket.destroy();
  }
}

/** Any answer shows that the server was reached. */
async function askServer(uplink: Uplink, name: string, options: SendOptions): Promise<void> {
  try {
    await resolveOver(uplink, name, options);
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code !== "ENOTFOUND" && code !== "ENODATA") throw error;
  }
}

async function connect(uplink: Uplink, host: string, port: number, options: SendOptions): Promise<Socket> {
  const literal = IpAddress.tryParse(host);
  const addresses = literal === undefined ? await resolveOver(uplink, host, options) : [literal];
  const ways = addresses.flatMap((address) => {
    const source = sourceFor(uplink, address);
    return source === undefined ? [] : [{ address, source }];
  });
  const [way] = ways;
  if (way === undefined) throw new Skip(`no address of the uplink reaches ${host}`);
  options.signal.throwIfAborted();
  const fd = openTcp(way.address.family, { source: way.source, mark: options.mark?.() });
  const socket = new Socket({ fd });
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  socket.once("connect", () => resolve(socket));
  socket.on("error", reject);
  socket.connect({ host: way.address.toString(), port });
  try {
    return await unlessAborted(promise, options);
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function resolveOver(uplink: Uplink, name: string, { signal }: SendOptions): Promise<IpAddress[]> {
  const of = (family: 4 | 6) => uplink.addresses.find((own) => own.isUsable && own.address.family === family)?.address;
  const [v4, v6] = [of(4), of(6)];
  const servers = uplink.dnsServers.filter(({ family }) => (family === 4 ? v4 : v6) !== undefined);
  if (servers.length === 0) throw new Skip("the uplink has no DNS server that it can reach");
  const resolver = new Resolver({ tries: 2 });
  resolver.setServers(servers.map(String));
  resolver.setLocalAddress(v4?.toString() ?? "0.0.0.0", v6?.toString() ?? "::0");
  const onAbort = (): void => resolver.cancel();
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    const answers = await Promise.allSettled([
      v4 === undefined ? [] : resolver.resolve4(name),
      v6 === undefined ? [] : resolver.resolve6(name),
    ]);
    signal.throwIfAborted();
    const found = answers.flatMap((answer) => (answer.status === "fulfilled" ? answer.value : []));
    const failure = answers.find((answer) => answer.status === "rejected");
    if (found.length === 0 && failure !== undefined) throw failure.reason;
    return found.flatMap((text) => IpAddress.tryParse(text) ?? []);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

function sourceFor(uplink: Uplink, destination: IpAddress): IpAddress | undefined {
  return uplink.addresses.find((own) => own.isUsable && own.address.family === destination.family)?.address;
}

function reasonOf(error: unknown): string {
  if (isKernelError(error)) return error.errno ?? error.code;
  const code = (error as NodeJS.ErrnoException).code;
  return typeof code === "string" && code !== "" ? code : describeError(error);
}

/** Pure: the name of a target in logs and errors: `tcp 203.0.113.80:443`. */
export function describeTarget(target: ProbeTarget): string {
  if (target.type === "http") return `http ${target.url}`;
  if (target.type === "dns") return `dns ${target.name}`;
  return `tcp ${target.host.includes(":") ? `[${target.host}]` : target.host}:${target.port}`;
}

/** Pure: whether a successful probe of this target proves that payload passes, not only a handshake. */
export function provesPayload(target: ProbeTarget): boolean {
  return target.type !== "tcp";
}
