import { X509Certificate } from "node:crypto";
import { Resolver } from "node:dns/promises";
import { request as httpRequest, type IncomingMessage } from "node:http";
import { Socket } from "node:net";
import {
  checkServerIdentity,
  createSecureContext,
  getCACertificates,
  type SecureContext,
  type TLSSocket,
  connect as tlsConnect,
} from "node:tls";
import { unlessAborted, withDeadline } from "#base/async";
import { describeError } from "#base/errors";
import { FileError, readBounded } from "#base/file";
import { IpAddress } from "#base/ip";
import type { HttpProbeTarget, ProbeTarget, Uplink } from "#base/uplink-model";
import { isKernelError } from "#kernel/errors";
import { openTcp } from "#kernel/socket";

/**
 * The outcome of a probe. `foreign`: there is an answer, but not the expected one: somebody else answers, such as a captive portal.
 * `skipped`: the probe is not possible on this uplink, which is not evidence.
 */
export type ProbeOutcome =
  | { readonly kind: "ok" }
  | { readonly kind: "failed" | "foreign"; readonly reason: string }
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

/** The answer is not the expected one. */
class ForeignAnswer extends Error {}

/** Most of an answer's body that is read for the expected text, in bytes. */
const MAX_BODY_BYTES = 65_536;
/** Most of a redirect's address that is shown. */
const MAX_LOCATION = 128;

/**
 * The real prober: every socket is bound to an address of the uplink. `mark`, read for each probe, keeps transparent mode from redirecting
 * our own probes.
 */
export function openProber(options: { readonly mark?: () => number | undefined } = {}): Prober {
  let known: SecureContext | undefined;
  // There are hundreds of them, and parsing them takes milliseconds.
  const knownAuthorities = (): SecureContext => {
    known ??= createSecureContext({ ca: [...getCACertificates("default"), ...getCACertificates("system")] });
    return known;
  };
  return {
    async probe(uplink, target, { timeoutMs, signal }) {
      const time = { isUp: false };
      const work = async (inner: AbortSignal): Promise<void> => {
        inner.addEventListener("abort", () => {
          time.isUp = true;
        });
        await send(uplink, target, { signal: inner, knownAuthorities, ...options });
      };
      try {
        await withDeadline(timeoutMs, work, { signal });
        return { kind: "ok" };
      } catch (error) {
        if (error instanceof Skip) return { kind: "skipped", reason: error.message };
        if (signal.aborted) return { kind: "skipped", reason: "the probe is no longer wanted" };
        if (error instanceof ForeignAnswer) return { kind: "foreign", reason: error.message };
        // If the deadline aborts an operation, that operation fails with its own error.
        return { kind: "failed", reason: time.isUp ? "timeout" : reasonOf(error) };
      }
    },
  };
}

interface SendOptions {
  /** The authorities of Node.js and of the system. */
  readonly knownAuthorities: () => SecureContext;
  readonly signal: AbortSignal;
  readonly mark?: () => number | undefined;
}

function send(uplink: Uplink, target: ProbeTarget, options: SendOptions): Promise<void> {
  switch (target.type) {
    case "tcp":
      return handshake(uplink, target.host, target.port, options);
    case "http":
      return fetchExpected(uplink, target, options);
    case "dns":
      return askServer(uplink, target.name, options);
  }
}

async function handshake(uplink: Uplink, host: string, port: number, options: SendOptions): Promise<void> {
  const socket = await connect(uplink, host, port, options);
  socket.destroy();
}

/** Throws {@link ForeignAnswer} if an answer is not the expected one, or its certificate is not of the host. */
async function fetchExpected(uplink: Uplink, target: HttpProbeTarget, options: SendOptions): Promise<void> {
  const url = new URL(target.url);
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const isTls = url.protocol === "https:";
  const { caFile } = target;
  const authorities = caFile === undefined ? undefined : readAuthorities(caFile);
  const socket = await connect(uplink, host, Number(url.port || (isTls ? 443 : 80)), options);
  const stream = isTls ? openTls(socket, host, authorities ?? options.knownAuthorities()) : socket;
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  // The listener also stays after the answer: an error without a listener would end the process.
  stream.on("error", reject);
  const request = httpRequest({
    createConnection: () => stream,
    path: `${url.pathname}${url.search}`,
    headers: { host: url.host, connection: "close" },
    signal: options.signal,
  });
  request.on("error", reject);
  request.once("response", resolve);
  request.end();
  try {
    await checkAnswer(await promise, target);
  } catch (error) {
    if (isCertificateError(error)) throw new ForeignAnswer(`certificate: ${reasonOf(error)}`, { cause: error });
    throw error;
  } finally {
    request.destroy();
    stream.destroy();
    socket.destroy();
  }
}

function openTls(socket: Socket, host: string, secureContext: SecureContext): TLSSocket {
  const named = IpAddress.tryParse(host) === undefined ? { servername: host } : {};
  // Without a name Node.js would compare the certificate with "localhost".
  const identity: typeof checkServerIdentity = (_name, certificate) => checkServerIdentity(host, certificate);
  return tlsConnect({ socket, ...named, secureContext, checkServerIdentity: identity });
}

/** Reads a file of the settings; it is a fault of the settings and not of the uplink if that fails. */
function readAuthorities(path: string): SecureContext {
  const pem = readCertificates(path);
  try {
    // A context ignores what is no certificate.
    new X509Certificate(pem);
    return createSecureContext({ ca: pem });
  } catch (error) {
    throw new Skip(`caFile ${path} has no certificate in PEM: ${describeError(error)}`, { cause: error });
  }
}

function readCertificates(path: string): string {
  try {
    return readBounded(path);
  } catch (error) {
    if (!(error instanceof FileError)) throw error;
    throw new Skip(`caFile: ${error.message}`, { cause: error });
  }
}

async function checkAnswer(response: IncomingMessage, target: HttpProbeTarget): Promise<void> {
  const status = response.statusCode ?? 0;
  const isWanted = target.status === undefined ? status >= 200 && status < 300 : status === target.status;
  const { location } = response.headers;
  const to = location === undefined ? "" : ` to ${location.slice(0, MAX_LOCATION)}`;
  // A server's own fault, with the exception of RFC 6585 section 6: network authentication required.
  if (!isWanted && status >= 500 && status !== 511) throw new Error(`status ${status}`);
  if (!isWanted) throw new ForeignAnswer(`status ${status}${to}`);
  if (target.body === undefined) return;
  let read = Buffer.alloc(0);
  for await (const chunk of response) {
    read = Buffer.concat([read, chunk as Buffer]);
    if (read.includes(target.body)) return;
    if (read.length > MAX_BODY_BYTES) break;
  }
  throw new ForeignAnswer("the body lacks the expected text");
}

/** The server has a certificate, of an unknown authority or of another host. */
function isCertificateError(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return typeof code === "string" && (CERTIFICATE_ERRORS.has(code) || code === "ERR_TLS_CERT_ALTNAME_INVALID");
}

/** X509 errors of Node.js's TLS (src/crypto/crypto_common.cc) that tell of a server with another authority. An expired one is its own fault. */
const CERTIFICATE_ERRORS: ReadonlySet<string> = new Set([
  "DEPTH_ZERO_SELF_SIGNED_CERT",
  "SELF_SIGNED_CERT_IN_CHAIN",
  "UNABLE_TO_GET_ISSUER_CERT",
  "UNABLE_TO_GET_ISSUER_CERT_LOCALLY",
  "UNABLE_TO_VERIFY_LEAF_SIGNATURE",
]);

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

/** Pure: whether a successful probe of this target proves that no captive portal answers in place of the destination. */
export function provesOrigin(target: ProbeTarget): boolean {
  return target.type === "http";
}
