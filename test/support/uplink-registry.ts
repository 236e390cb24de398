/**
 * A registry as containerd meets it, and a client that pulls as containerd does: a token from one host, manifests from a second,
 * blobs by redirect from a third, each blob over connections of its own, resumed with Range if a connection fails.
 *
 * Owns: both ends. Does not know: the proxy between them.
 */
import { createHash, randomBytes } from "node:crypto";
import { request as httpRequest, type IncomingMessage, type RequestListener, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { requestConnect, secure } from "#lab/inside";

export const HOSTS = { registry: "registry.example", auth: "auth.example", blobs: "blob.example" } as const;
const TOKEN = "a-token";
/** The number of requests of a client for the rest of a blob. */
const TRIES = 5;
const STEP_MS = 30_000;

/** An image: layers by digest. */
export class Image {
  readonly blobs: ReadonlyMap<string, Buffer>;

  constructor(layers: number, bytes: number) {
    const all = Array.from({ length: layers }, () => randomBytes(bytes));
    this.blobs = new Map(all.map((blob) => [digestOf(blob), blob]));
  }
}

/** All three hosts, distinguished by the Host field; `who` is called with each answer and its client. */
export function registryHandler(image: Image, port: number, who: (line: string) => void): RequestListener {
  const answers: Readonly<Record<string, (request: IncomingMessage, response: ServerResponse) => void>> = {
    [HOSTS.auth]: (_request, response) => void response.end(JSON.stringify({ token: TOKEN })),
    [HOSTS.registry]: (request, response) => {
      if (request.headers.authorization !== `Bearer ${TOKEN}`) {
        response.setHeader("www-authenticate", `Bearer realm="https://${HOSTS.auth}:${port}/token"`);
        response.writeHead(401).end();
      } else if (request.url === "/v2/app/manifests/latest") {
        response.end(JSON.stringify({ layers: [...image.blobs.keys()] }));
      } else {
        const digest = request.url?.split("/").at(-1) ?? "";
        response.writeHead(307, { location: `https://${HOSTS.blobs}:${port}/${digest}` }).end();
      }
    },
    [HOSTS.blobs]: (request, response) => {
      const blob = image.blobs.get(request.url?.slice(1) ?? "");
      const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
      if (blob === undefined) response.writeHead(404).end();
      else {
        const range = from === 0 ? {} : { "content-range": `bytes ${from}-${blob.length - 1}/${blob.length}` };
        response.writeHead(from === 0 ? 200 : 206, { ...range, "content-length": blob.length - from });
        response.end(blob.subarray(from));
      }
    },
  };
  return (request, response) => {
    const host = (request.headers.host ?? "").split(":")[0] ?? "";
    who(`${request.socket.remoteAddress} ${host} ${request.headers.range ?? "whole"}`);
    const answer = answers[host];
    if (answer === undefined) response.writeHead(421).end();
    else answer(request, response);
  };
}

/** The connection of a client to hosts. */
export interface PullPlace {
  readonly connectProxy: () => Promise<Socket>;
  readonly ca: string;
  readonly port: number;
  /** Called when the manifest was read, before the first blob. */
  readonly onManifest?: () => void;
}

/** Pulls all of an image; resolves with the layers' digests, each checked, and the number of repeated requests for blobs. */
export async function pull(
  place: PullPlace,
): Promise<{ readonly digests: readonly string[]; readonly resumed: number }> {
  const get = async (url: string, headers: Readonly<Record<string, string>>): Promise<Answer> => {
    const body: Buffer[] = [];
    return { ...(await download(place, url, headers, (chunk) => body.push(chunk))), body: Buffer.concat(body) };
  };
  const base = `https://${HOSTS.registry}:${place.port}/v2/app`;
  const challenge = (await get(`${base}/manifests/latest`, {})).headers["www-authenticate"] ?? "";
  const realm = /realm="([^"]+)"/.exec(challenge)?.[1] ?? "";
  const { token } = JSON.parse((await get(realm, {})).body.toString()) as { token: string };
  const authorization = { authorization: `Bearer ${token}` };
  const manifest = JSON.parse((await get(`${base}/manifests/latest`, authorization)).body.toString()) as {
    layers: string[];
  };
  place.onManifest?.();
  let resumed = 0;
  const fetchBlob = async (digest: string): Promise<string> => {
    const { headers } = await get(`${base}/blobs/${digest}`, authorization);
    const parts: Buffer[] = [];
    for (let tried = 1; ; tried += 1) {
      const from = parts.reduce((sum, { length }) => sum + length, 0);
      const range: Readonly<Record<string, string>> = from === 0 ? {} : { range: `bytes=${from}-` };
      try {
        await download(place, headers.location ?? "", range, (chunk) => parts.push(chunk));
        break;
      } catch (error) {
        if (tried === TRIES) throw error;
        resumed += 1;
      }
    }
    return digestOf(Buffer.concat(parts));
  };
  return { digests: await Promise.all(manifest.layers.map(fetchBlob)), resumed };
}

interface Answer {
  readonly headers: IncomingMessage["headers"];
  readonly body: Buffer;
}

/** GETs through the proxy; rejects when the body ends early, and the bytes received before were passed to the callback. */
async function download(
  { connectProxy, ca }: PullPlace,
  url: string,
  headers: Readonly<Record<string, string>>,
  onChunk: (chunk: Buffer) => void,
): Promise<Pick<Answer, "headers">> {
  const { hostname, port, host, pathname } = new URL(url);
  const options = { timeoutMs: STEP_MS };
  const tunnel = await requestConnect(await connectProxy(), `${hostname}:${port}`, options);
  const tls = await secure(tunnel, { host: hostname, ca }, options);
  const { promise, resolve, reject } = Promise.withResolvers<Pick<Answer, "headers">>();
  const sent = httpRequest({ createConnection: () => tls, path: pathname, headers: { ...headers, host } });
  sent.once("error", reject);
  tls.on("error", reject);
  sent.once("response", (response) => {
    response.on("data", onChunk);
    response.once("error", reject);
    response.once("end", () => resolve({ headers: response.headers }));
  });
  sent.end();
  return promise.finally(() => tls.destroy());
}

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
