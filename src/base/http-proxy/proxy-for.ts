import { Cidr, IpAddress } from "#base/ip";
import { HttpProxyError } from "./errors.ts";

/** A proxy that takes CONNECT. */
export interface HttpProxy {
  readonly protocol: "http:" | "https:";
  /** Without the brackets of an IPv6 address. */
  readonly hostname: string;
  readonly port: number;
  /** The value of Proxy-Authorization, if the URL has a user. */
  readonly authorization?: string | undefined;
  /** The URL without its password, for messages. */
  readonly name: string;
}

/** A client wants to connect to this. */
export interface ProxyTarget {
  readonly protocol: "http:" | "https:";
  /** Without the brackets of an IPv6 address. */
  readonly hostname: string;
  readonly port: number;
}

type Environment = Readonly<Record<string, string | undefined>>;

/** The most that is read of NO_PROXY, in characters. */
const MAX_NO_PROXY = 64 * 1024;

/**
 * Pure: the proxy for a target by the environment; `undefined`: none. HTTPS_PROXY is for https, HTTP_PROXY for http; lower case counts where upper case is absent or empty. Never a proxy for
 * loopback addresses and `localhost`, nor for what NO_PROXY names: `*`, addresses, CIDRs, domains with all below them (`.domain`: only those below), each with a port if only
 * this port is meant. Throws {@link HttpProxyError} `invalid` for a URL that is none.
 */
export function proxyFor(target: ProxyTarget, env: Environment): HttpProxy | undefined {
  const named = (name: string): string => env[name] || env[name.toLowerCase()] || "";
  const name = target.protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY";
  const text = named(name).trim();
  if (text === "" || isDirect(target, named("NO_PROXY").slice(0, MAX_NO_PROXY))) return undefined;
  return parseProxy(text, name);
}

/** Pure: a proxy by its URL; without a scheme it is http. `from` names the setting. Throws {@link HttpProxyError} `invalid`. */
export function parseProxy(text: string, from: string): HttpProxy {
  const url = URL.parse(text.includes("://") ? text : `http://${text}`);
  // The URL may have a password.
  if (url === null || url.hostname === "")
    throw new HttpProxyError("invalid", `${from} is not the URL of a proxy: http://HOST:PORT is expected`);
  const { protocol } = url;
  if (protocol !== "http:" && protocol !== "https:")
    throw new HttpProxyError(
      "invalid",
      `${from} names a proxy of ${protocol.slice(0, -1)}: http and https are supported`,
    );
  const port = url.port === "" ? (protocol === "https:" ? 443 : 80) : Number(url.port);
  const user = `${decoded(url.username)}:${decoded(url.password)}`;
  return {
    protocol,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port,
    ...(url.username === "" ? {} : { authorization: `Basic ${Buffer.from(user).toString("base64")}` }),
    name: `${protocol}//${url.hostname}:${port}`,
  };
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function isDirect({ hostname, port }: ProxyTarget, noProxy: string): boolean {
  const host = hostname.toLowerCase().replace(/\.$/, "");
  if (host === "localhost") return true;
  const address = addressOf(host);
  if (address !== undefined && LOOPBACK.some((range) => range.family === address.family && range.contains(address)))
    return true;
  return noProxy.split(/[\s,]+/).some((entry) => entry !== "" && matches(entry.toLowerCase(), { host, address, port }));
}

const LOOPBACK = ["127.0.0.0/8", "::1/128"].map((text) => Cidr.parse(text));

function matches(
  entry: string,
  { host, address, port }: { readonly host: string; readonly address: IpAddress | undefined; readonly port: number },
): boolean {
  if (entry === "*") return true;
  const range = rangeOf(entry);
  if (range !== undefined) return address !== undefined && range.family === address.family && range.contains(address);
  const whole = addressOf(entry.replace(/^\[([^\]]*)\]$/, "$1"));
  const [, bare = entry, only] = whole === undefined ? (/^(.*):(\d{1,5})$/.exec(entry) ?? []) : [];
  if (only !== undefined && Number(only) !== port) return false;
  const wanted = whole ?? addressOf(bare.replace(/^\[([^\]]*)\]$/, "$1"));
  if (wanted !== undefined) return address !== undefined && wanted.equals(address);
  if (address !== undefined) return false;
  const domain = bare.replace(/^\*(?=\.)/, "");
  return domain.startsWith(".") ? host.endsWith(domain) : host === domain || host.endsWith(`.${domain}`);
}

function addressOf(text: string): IpAddress | undefined {
  try {
    return IpAddress.parse(text);
  } catch {
    return undefined;
  }
}

function rangeOf(text: string): Cidr | undefined {
  if (!text.includes("/")) return undefined;
  try {
    return Cidr.parse(text);
  } catch {
    return undefined;
  }
}
