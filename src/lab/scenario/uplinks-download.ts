import { createHash } from "node:crypto";
import type { AbortOptions } from "#base/async";
import { describeError } from "#base/errors";
import { IpAddress } from "#base/ip";
import type { LabUplinks } from "#lab/host";
import { connectInside, InsideError, requestConnect, requestWhole, secure, type WholeAnswer } from "#lab/inside";
import { CLIENT_HEADER, FILE_BYTES } from "#lab/internet";
import { formatHostPort } from "#wire/http-connect";
import type { UplinkDownload } from "./uplinks-report.ts";

/** Timeout of each step of a download, in milliseconds. */
const STEP_MS = 20_000;

/** One download through the proxy, and the expected result. */
export interface DownloadRequest extends Pick<UplinkDownload, "when" | "to" | "wanted"> {
  /** `/file`: the whole content is checked. `/who`: the answer is one line. */
  readonly path: "/file" | "/who";
}

/** The node with the proxy, and the trusted authority. */
export interface DownloadSource {
  readonly uplinks: LabUplinks;
  /** PEM: the authority of the server. */
  readonly ca: string;
}

/**
 * Downloads in the node as a program behind the proxy would: CONNECT, TLS, GET. A client's error is part of the result.
 * Rejects with the signal's reason, and with `KernelError` where the node is gone.
 */
export async function download(
  place: DownloadSource,
  { path, ...request }: DownloadRequest,
  options: AbortOptions,
): Promise<UplinkDownload> {
  const startedMs = performance.now();
  const ended = (): number => Number(((performance.now() - startedMs) / 1000).toFixed(3));
  try {
    const answer = await fetchThrough(place, request.to, path, options);
    const uplink = uplinkOf(place.uplinks, String(answer.headers[CLIENT_HEADER] ?? ""));
    const error = path === "/file" ? faultOf(answer) : undefined;
    const result = { ...request, uplink, bytes: answer.body.length, seconds: ended() };
    return error === undefined ? { ...result, ok: true } : { ...result, ok: false, error };
  } catch (error) {
    if (!(error instanceof InsideError)) throw error;
    return { ...request, uplink: "", bytes: 0, seconds: ended(), ok: false, error: describeError(error) };
  }
}

/** A page of the proxy itself, requested from inside the node. Rejects as `connectInside` and `requestWhole` do. */
export async function proxyPage(uplinks: LabUplinks, path: string, options: AbortOptions): Promise<string> {
  const socket = await connectProxy(uplinks, options);
  const { body } = await requestWhole(socket, { path, host: "127.0.0.1" }, { ...options, timeoutMs: STEP_MS });
  return body.toString();
}

async function fetchThrough(
  { uplinks, ca }: DownloadSource,
  host: string,
  path: string,
  { signal }: AbortOptions,
): Promise<WholeAnswer> {
  const options = { signal, timeoutMs: STEP_MS };
  const socket = await connectProxy(uplinks, options);
  const tunnel = await requestConnect(socket, formatHostPort({ host, port: uplinks.server.port }), options);
  const tls = await secure(tunnel, { host, ca }, options);
  return requestWhole(tls, { path, host }, options);
}

function connectProxy({ netns, proxy }: LabUplinks, { signal }: AbortOptions): ReturnType<typeof connectInside> {
  const place = { address: IpAddress.parse(proxy.address), port: proxy.port };
  return connectInside({ name: netns }, place, { signal, timeoutMs: STEP_MS });
}

/** Pure: why an answer is not the whole file. */
function faultOf({ status, headers, body }: WholeAnswer): string | undefined {
  if (status !== 200) return `the server answered ${status}`;
  if (body.length !== FILE_BYTES) return `${body.length} of ${FILE_BYTES} bytes were received`;
  const digest = `sha-256=:${createHash("sha256").update(body).digest("base64")}:`;
  return headers["repr-digest"] === digest
    ? undefined
    : `the digest of the received bytes is ${digest}, the server's is ${headers["repr-digest"]}`;
}

/** Pure: the uplink that has an address; empty when none does. */
function uplinkOf({ links }: LabUplinks, client: string): string {
  const address = IpAddress.tryParse(client);
  if (address === undefined) return "";
  const has = (texts: readonly string[]): boolean => texts.some((text) => IpAddress.parse(text).equals(address));
  return links.find(({ addresses }) => has(addresses))?.name ?? "";
}
