import { Buffer } from "node:buffer";
import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
import { isEqual } from "#base/collections";
import { type HttpProxy, HttpProxyError, parseProxy, proxyFor } from "#base/http-proxy";
import { CachedFile } from "./cached-file.ts";
import type { KubeConnection, KubeCredentials } from "./connection.ts";
import { KubeConfigError } from "./errors.ts";
import { ExecPlugin } from "./exec-plugin.ts";
import { Fields, type KubeConfigParts } from "./kubeconfig.ts";

interface Source {
  read(): Promise<string>;
  expire(): void;
}

/** Makes a connection of one context. Pure; its credentials read files and run plugins later. Throws {@link KubeConfigError}. */
export function connectionOf(
  parts: KubeConfigParts,
  options: { readonly context?: string | undefined; readonly env?: Environment | undefined; readonly clock: Clock },
): KubeConnection {
  const clock = options.clock;
  const name = options.context ?? parts.currentContext;
  if (name === undefined) {
    throw new KubeConfigError(
      "invalid",
      `kubeconfig ${parts.source}: current-context is not set; set it, or choose a context`,
    );
  }
  const context = pick(
    parts,
    "contexts",
    name,
    options.context === undefined ? "current-context" : "the chosen context",
  );
  const clusterName = context.string("cluster");
  if (clusterName === undefined) throw context.invalid("cluster", "is missing");
  const cluster = pick(parts, "clusters", clusterName, context.path("cluster"));
  const userName = context.string("user");
  const user = userName === undefined ? undefined : pick(parts, "users", userName, context.path("user"));
  const named = { context, cluster, user: user ?? new Fields(parts.source, "users[]", {}) };
  return build(parts.source, named, options.env ?? {}, clock);
}

/** Variables of an environment by name. */
export type Environment = Readonly<Record<string, string | undefined>>;

function pick(parts: KubeConfigParts, kind: "contexts" | "clusters" | "users", name: string, by: string): Fields {
  const found = parts[kind].get(name);
  if (found !== undefined) return found;
  const known = [...parts[kind].keys()].slice(0, 10).join(", ") || "none";
  throw new KubeConfigError(
    "invalid",
    `kubeconfig ${parts.source}: ${by} names "${name}", but ${kind} has only: ${known}`,
  );
}

function build(
  source: string,
  { context, cluster, user }: Readonly<Record<"context" | "cluster" | "user", Fields>>,
  env: Environment,
  clock: Clock,
): KubeConnection {
  const server = serverOf(cluster);
  const skip = cluster.boolean("insecure-skip-tls-verify");
  const ca = material(cluster, "certificate-authority", clock);
  if (skip && ca !== undefined) {
    throw cluster.invalid(
      "insecure-skip-tls-verify",
      "cannot be true together with a certificate-authority; remove one",
    );
  }
  const tlsServerName = cluster.string("tls-server-name");
  const proxyUrl = cluster.string("proxy-url");
  refuseUnsupported(user);
  const cert = material(user, "client-certificate", clock);
  const key = material(user, "client-key", clock);
  if ((cert === undefined) !== (key === undefined)) {
    throw user.invalid(
      cert === undefined ? "client-certificate" : "client-key",
      "is missing: a certificate needs its key",
    );
  }
  const exec = user.object("exec");
  const plugin =
    exec === undefined
      ? undefined
      : new ExecPlugin(
          exec,
          async () => ({
            server: server.href,
            ...(tlsServerName === undefined ? {} : { "tls-server-name": tlsServerName }),
            ...(skip ? { "insecure-skip-tls-verify": true } : {}),
            ...(proxyUrl === undefined ? {} : { "proxy-url": proxyUrl }),
            ...(ca === undefined
              ? {}
              : { "certificate-authority-data": Buffer.from(await ca.read()).toString("base64") }),
            ...pluginConfigOf(cluster),
          }),
          clock,
        );
  return connect({
    source,
    server,
    namespace: context.string("namespace") ?? "default",
    proxyTo: proxyBy(
      source,
      env,
      proxyUrl === undefined ? undefined : { text: proxyUrl, from: cluster.path("proxy-url") },
    ),
    tlsServerName,
    insecureSkipTlsVerify: skip,
    ca,
    cert,
    key,
    token: tokenOf(user, clock),
    plugin,
    headers: { ...basicOf(user), ...impersonation(user) },
  });
}

/** The name of the extension of a cluster that is for exec plugins (`client-go/tools/clientcmd/api/types.go`). */
const EXEC_EXTENSION = "client.authentication.k8s.io/exec";

/** Returns the configuration of the cluster's entry for plugins, which is not interpreted. */
function pluginConfigOf(cluster: Fields): { readonly config?: unknown } {
  const found = cluster.objects("extensions").find((one) => one.string("name") === EXEC_EXTENSION);
  return found?.has("extension") === true ? { config: found.value("extension") } : {};
}

interface ConnectInit {
  readonly source: string;
  readonly server: URL;
  readonly namespace: string;
  readonly proxyTo: (server: URL) => HttpProxy | undefined;
  readonly tlsServerName?: string | undefined;
  readonly insecureSkipTlsVerify?: boolean;
  readonly ca?: Source | undefined;
  readonly cert?: Source | undefined;
  readonly key?: Source | undefined;
  readonly token?: Source | undefined;
  readonly plugin?: ExecPlugin | undefined;
  readonly headers?: Readonly<Record<string, string | string[]>>;
}

/** The proxy of the kubeconfig's `proxy-url`, else that of the environment, as in client-go. The function throws `invalid`. */
export function proxyBy(
  source: string,
  env: Environment,
  configured?: { readonly text: string; readonly from: string },
): (server: URL) => HttpProxy | undefined {
  return ({ protocol, hostname, port }) => {
    try {
      if (configured !== undefined) return parseProxy(configured.text, configured.from);
      const isPlain = protocol === "http:";
      const at = {
        hostname: hostname.replace(/^\[|\]$/g, ""),
        port: port === "" ? (isPlain ? 80 : 443) : Number(port),
      };
      return proxyFor({ protocol: isPlain ? "http:" : "https:", ...at }, env);
    } catch (cause) {
      if (!(cause instanceof HttpProxyError)) throw cause;
      throw new KubeConfigError("invalid", `${source}: ${cause.message}`, { cause });
    }
  };
}

/** Makes a connection that reads its credentials when they are needed. Throws `invalid` for a proxy that is none. */
export function connect(init: ConnectInit): KubeConnection {
  init.proxyTo(init.server);
  let last: KubeCredentials | undefined;
  return {
    server: init.server,
    namespace: init.namespace,
    source: init.source,
    proxyTo: init.proxyTo,
    tlsServerName: init.tlsServerName,
    insecureSkipTlsVerify: init.insecureSkipTlsVerify ?? false,
    async credentials(options: AbortOptions = {}): Promise<KubeCredentials> {
      const [ca, cert, key, token] = await Promise.all([
        init.ca?.read(),
        init.cert?.read(),
        init.key?.read(),
        init.token?.read(),
      ]);
      // A static token or certificate takes precedence over the plugin, as in client-go.
      const made = token === undefined && cert === undefined ? await init.plugin?.get(options) : undefined;
      const bearer = (token ?? made?.token)?.trim();
      const next: KubeCredentials = {
        headers: {
          ...init.headers,
          ...(bearer === undefined || bearer === "" ? {} : { authorization: `Bearer ${bearer}` }),
        },
        ca,
        cert: cert ?? made?.cert,
        key: key ?? made?.key,
      };
      last = last !== undefined && isEqual(last, next) ? last : next;
      return last;
    },
    expire(): void {
      init.ca?.expire();
      init.token?.expire();
      init.cert?.expire();
      init.key?.expire();
      init.plugin?.expire();
    },
  };
}

function serverOf(cluster: Fields): URL {
  const text = cluster.string("server");
  if (text === undefined) throw cluster.invalid("server", "is missing: write the API server's URL");
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw cluster.invalid("server", `"${text}" is not a URL such as https://10.0.0.1:6443`);
  }
  return url;
}

function refuseUnsupported(user: Fields): void {
  if (!user.has("auth-provider")) return;
  throw new KubeConfigError(
    "unsupported",
    `kubeconfig ${user.file}: ${user.path("auth-provider")} is not supported; use an exec plugin`,
  );
}

/** Returns the header of RFC 7617. Throws `invalid` beside a token, as client-go does. */
function basicOf(user: Fields): Record<string, string> {
  const [name, password = ""] = [user.string("username"), user.string("password")];
  if (name === undefined) return {};
  if (user.has("token") || user.has("tokenFile"))
    throw user.invalid("username", "and a token are set; remove one: a request has one of them");
  return { authorization: `Basic ${Buffer.from(`${name}:${password}`).toString("base64")}` };
}

/** Reads `NAME-data` (base64) or the file that `NAME` names. If both are given, `NAME-data` takes precedence, as in client-go. */
function material(fields: Fields, name: string, clock: Clock): Source | undefined {
  const data = fields.string(`${name}-data`);
  if (data !== undefined) {
    const text = Buffer.from(data, "base64").toString("utf8");
    if (!text.includes("-----BEGIN ")) throw fields.invalid(`${name}-data`, "is not base64 of a PEM text");
    return fixed(text);
  }
  const path = fields.filePath(name);
  return path === undefined
    ? undefined
    : new CachedFile(path, `${fields.path(name)} of kubeconfig ${fields.file}`, clock);
}

function tokenOf(user: Fields, clock: Clock): Source | undefined {
  const path = user.filePath("tokenFile");
  const file =
    path === undefined
      ? undefined
      : new CachedFile(path, `${user.path("tokenFile")} of kubeconfig ${user.file}`, clock);
  const token = user.string("token");
  if (token === undefined) return file;
  if (!/^[\x21-\x7e]+$/.test(token.trim())) throw user.invalid("token", "has characters that no token has");
  return file === undefined ? fixed(token) : firstReadable(file, token);
}

/** Beside `token` the `tokenFile` takes precedence while it can be read, as in client-go. */
function firstReadable(file: Source, token: string): Source {
  const read = async (): Promise<string> => {
    try {
      return await file.read();
    } catch (error) {
      if (error instanceof KubeConfigError && error.code === "unreadable") return token;
      throw error;
    }
  };
  return { read, expire: () => file.expire() };
}

/** The headers by which a request acts as somebody else. Throws `invalid` for groups or other attributes without a user, as client-go does. */
function impersonation(user: Fields): Record<string, string | string[]> {
  const as = user.string("as");
  const uid = user.string("as-uid");
  const groups = user.strings("as-groups");
  const extra = user.object("as-user-extra");
  const attributes = (extra?.names ?? []).map((name) => [name, extra?.strings(name) ?? []] as const);
  if (as === undefined) {
    const alone = Object.entries({
      "as-uid": uid !== undefined,
      "as-groups": groups.length > 0,
      "as-user-extra": attributes.length > 0,
    });
    for (const [field, isSet] of alone) if (isSet) throw user.invalid(field, 'needs "as", the name of the user');
    return {};
  }
  return {
    "impersonate-user": as,
    ...(uid === undefined ? {} : { "impersonate-uid": uid }),
    ...(groups.length === 0 ? {} : { "impersonate-group": groups }),
    ...Object.fromEntries(
      attributes.map(([name, values]) => [`impersonate-extra-${encodeURIComponent(name)}`.toLowerCase(), values]),
    ),
  };
}

function fixed(text: string): Source {
  return { read: async () => text, expire: () => undefined };
}
