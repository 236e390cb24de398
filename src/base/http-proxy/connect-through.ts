import type { RequestOptions } from "node:http";
import type { Socket } from "node:net";
import { machineTrust } from "#base/authorities";
import { describeError } from "#base/errors";
import { HttpProxyError } from "./errors.ts";
import type { HttpProxy, ProxyTarget } from "./proxy-for.ts";

/** The most that a proxy may answer before the tunnel, in bytes. */
const MAX_HEAD_BYTES = 16 * 1024;

/**
 * A connection to the target through the proxy. Rejects with {@link HttpProxyError}, and with the signal's reason; nothing is left open then. What the target has sent with the proxy's answer is
 * the first that is read.
 */
export async function connectThrough(
  proxy: HttpProxy,
  { hostname, port }: Pick<ProxyTarget, "hostname" | "port">,
  { signal }: { readonly signal: AbortSignal },
): Promise<Socket> {
  signal.throwIfAborted();
  const host = `${hostname.includes(":") ? `[${hostname}]` : hostname}:${port}`;
  const options: RequestOptions = {
    method: "CONNECT",
    host: proxy.hostname,
    port: proxy.port,
    path: host,
    agent: false,
    maxHeaderSize: MAX_HEAD_BYTES,
    headers: { host, ...(proxy.authorization === undefined ? {} : { "proxy-authorization": proxy.authorization }) },
    signal,
  };
  // Programs without a proxy load neither.
  const request =
    proxy.protocol === "https:"
      ? (await import("node:https")).request({ ...options, ...trust() })
      : (await import("node:http")).request(options);
  return await new Promise<Socket>((resolve, reject) => {
    request.once("connect", ({ statusCode = 0, statusMessage = "" }, socket, head) => {
      if (statusCode >= 200 && statusCode <= 299) {
        if (head.length > 0) socket.unshift(head);
        resolve(socket as Socket);
        return;
      }
      socket.destroy();
      const said = `${statusCode} ${statusMessage}`.trim();
      reject(new HttpProxyError("refused", `the proxy ${proxy.name} does not connect to ${host}: ${said}`));
    });
    request.once("error", (cause) => {
      if (signal.aborted) reject(signal.reason);
      else
        reject(
          new HttpProxyError("unreachable", `the proxy ${proxy.name} did not answer: ${describeError(cause)}`, {
            cause,
          }),
        );
    });
    request.end();
  });
}

function trust(): { readonly ca: string[]; readonly allowPartialTrustChain: true } {
  const { ca, allowPartialTrustChain } = machineTrust();
  return { ca: [...ca], allowPartialTrustChain };
}
