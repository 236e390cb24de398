import { Buffer } from "node:buffer";
import type { AbortOptions } from "#base/async";
import type { Clock } from "#base/clock";
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
  options: { readonly context?: string | undefined; readonly clock: Clock },
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
  return build(parts.source, context, cluster, user ?? new Fields(parts.source, "users[]", {}), clock);
}

function pick(parts: KubeConfigParts, kind: "contexts" | "clusters" | "users", name: string, by: string): Fields {
  const found = parts[kind].get(name);
  if (found !== undefined) return found;
  const known = [...parts[kind].keys()].slice(0, 10).join(", ") || "none";
  throw new KubeConfigError(
    "invalid",
    `kubeconfig ${parts.source}: ${by} names "${name}", but ${kind} has only: ${known}`,
  );
}

function build(source: string, context: Fields, cluster: Fields, user: Fields, clock: Clock): KubeConnection {
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
            ...(ca === undefined
              ? {}
              : { "certificate-authority-data": Buffer.from(await ca.read()).toString("base64") }),
          }),
          clock,
        );
  return connect({
    source,
    server,
    namespace: context.string("namespace") ?? "default",
    tlsServerName,
    insecureSkipTlsVerify: skip,
    ca,
    cert,
    key,
    token: tokenOf(user, clock),
    plugin,
    headers: impersonation(user),
  });
}

interface ConnectInit {
  readonly source: string;
  readonly server: URL;
  readonly namespace: string;
  readonly tlsServerName?: string | undefined;
  readonly insecureSkipTlsVerify?: boolean;
  readonly ca?: Source | undefined;
  readonly cert?: Source | undefined;
  readonly key?: Source | undefined;
  readonly token?: Source | undefined;
  readonly plugin?: ExecPlugin | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Makes a connection that reads its credentials when they are needed. */
export function connect(init: ConnectInit): KubeConnection {
  let last: KubeCredentials | undefined;
  return {
    server: init.server,
    namespace: init.namespace,
    source: init.source,
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
      last = last !== undefined && JSON.stringify(last) === JSON.stringify(next) ? last : next;
      return last;
    },
    expire(): void {
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
  if (cluster.has("proxy-url")) {
    throw new KubeConfigError(
      "unsupported",
      `kubeconfig ${cluster.file}: ${cluster.path("proxy-url")} is not supported; connect to the API server directly`,
    );
  }
  const url = URL.parse(text);
  if (url === null || (url.protocol !== "https:" && url.protocol !== "http:")) {
    throw cluster.invalid("server", `"${text}" is not a URL such as https://10.0.0.1:6443`);
  }
  return url;
}

function refuseUnsupported(user: Fields): void {
  const instead = { "auth-provider": "use an exec plugin", username: "use a token or a client certificate" };
  for (const [field, fix] of Object.entries(instead)) {
    if (user.has(field)) {
      throw new KubeConfigError("unsupported", `kubeconfig ${user.file}: ${user.path(field)} is not supported; ${fix}`);
    }
  }
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
  // If both are given, `tokenFile` takes precedence over `token`, as in client-go.
  const path = user.filePath("tokenFile");
  if (path !== undefined) return new CachedFile(path, `${user.path("tokenFile")} of kubeconfig ${user.file}`, clock);
  const token = user.string("token");
  if (token === undefined) return undefined;
  if (!/^[\x21-\x7e]+$/.test(token.trim())) throw user.invalid("token", "has characters that no token has");
  return fixed(token);
}

function impersonation(user: Fields): Record<string, string> {
  const as = user.string("as");
  if (user.has("as-groups") || user.has("as-user-extra")) {
    throw new KubeConfigError(
      "unsupported",
      `kubeconfig ${user.file}: ${user.path(user.has("as-groups") ? "as-groups" : "as-user-extra")} is not supported; use only "as" for impersonation`,
    );
  }
  return as === undefined ? {} : { "impersonate-user": as };
}

function fixed(text: string): Source {
  return { read: async () => text, expire: () => undefined };
}
