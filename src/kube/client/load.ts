import { readFile, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, join } from "node:path";
import type { Clock } from "#base/clock";
import { describeError } from "#base/errors";
import { withoutEnd } from "#base/text";
import { CachedFile } from "./cached-file.ts";
import type { KubeConnection } from "./connection.ts";
import { connect, connectionOf, type Environment as Env, proxyBy } from "./context.ts";
import { KubeConfigError } from "./errors.ts";
import { type KubeConfigParts, MAX_KUBECONFIG_BYTES, mergeKubeConfigs } from "./kubeconfig.ts";

/** The folder of a pod's credentials. */
const SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount";

/** Options that choose the kubeconfig. */
export interface LoadKubeConfigOptions {
  /** If given, only this file is read. */
  readonly path?: string | undefined;
  /** If true, only the pod's own service account is used. */
  readonly inCluster?: boolean | undefined;
  /** The name of the context. Default: the file's current-context. */
  readonly context?: string | undefined;
  /** Default: `process.env`. */
  readonly env?: Readonly<Record<string, string | undefined>> | undefined;
  /** A URL that replaces the API server's URL of the kubeconfig; the credentials stay the same. */
  readonly server?: string | undefined;
  /** URLs of further API servers of the same cluster, for when that one is not reached. Each has a certificate for its own address, or for `tls-server-name`. */
  readonly others?: readonly string[] | undefined;
  /** The folder of the service account. Default: the path at which Kubernetes mounts it. */
  readonly serviceAccountDir?: string | undefined;
  readonly clock: Clock;
}

/**
 * Finds the API server's address, our credentials, and the proxy between (`proxy-url`, else HTTPS_PROXY and NO_PROXY). In this order: `path`; `inCluster`; the files of `$KUBECONFIG`
 * (a list, merged); the pod's service account, when there is one; `~/.kube/config`.
 *
 * Rejects with {@link KubeConfigError}: one line with the file, the field and the fix.
 */
export async function loadKubeConfig(options: LoadKubeConfigOptions): Promise<KubeConnection> {
  const env = options.env ?? process.env;
  if (options.inCluster === true) return inCluster(options, env);
  const connection =
    (await fromFiles(options, env)) ??
    (env["KUBERNETES_SERVICE_HOST"] === undefined ? undefined : await inCluster(options, env)) ??
    (await fromHome(options, env));
  if (connection !== undefined)
    return withOthers(options.server === undefined ? connection : atServer(connection, options.server), options.others);
  throw new KubeConfigError(
    "not-found",
    "no kubeconfig was found: give its path with --kubeconfig or $KUBECONFIG, write one to ~/.kube/config, or run in a pod",
  );
}

function atServer(connection: KubeConnection, text: string): KubeConnection {
  return changed(connection, { server: urlOf(text) });
}

/** Throws {@link KubeConfigError} for a URL whose scheme or prefix is not the first server's. */
function withOthers(connection: KubeConnection, texts: readonly string[] = []): KubeConnection {
  if (texts.length === 0) return connection;
  const { protocol, pathname, href } = connection.server;
  const others = texts.map((text) => {
    const url = urlOf(text);
    if (url.protocol !== protocol || withoutEnd(url.pathname, "/") !== withoutEnd(pathname, "/"))
      throw new KubeConfigError(
        "invalid",
        `the API server "${text}" must have scheme and path of the first one, ${href}: they are servers of one cluster`,
      );
    return url;
  });
  const known = new Set([connection.server.host]);
  // One that is named twice is one.
  return changed(connection, { others: others.filter(({ host }) => !known.has(host) && known.add(host)) });
}

function urlOf(text: string): URL {
  const server = URL.parse(text);
  if (server === null || !["https:", "http:"].includes(server.protocol))
    throw new KubeConfigError("invalid", `"${text}" is not a URL of an API server: https://HOST:PORT is expected`);
  return server;
}

function changed(
  connection: KubeConnection,
  change: Partial<Pick<KubeConnection, "server" | "others">>,
): KubeConnection {
  const { server, others, namespace, source, proxyTo, tlsServerName, insecureSkipTlsVerify } = connection;
  return {
    ...{ server, others, namespace, source, proxyTo, tlsServerName, insecureSkipTlsVerify },
    ...change,
    credentials: (options) => connection.credentials(options),
    expire: () => connection.expire(),
  };
}

async function fromFiles(options: LoadKubeConfigOptions, env: Env): Promise<KubeConnection | undefined> {
  if (options.path !== undefined) return connectionOf(await readConfig(options.path), { ...options, env });
  const paths = (env["KUBECONFIG"] ?? "").split(delimiter).filter((path) => path !== "");
  if (paths.length === 0) return undefined;
  const parts: KubeConfigParts[] = [];
  for (const path of paths) if (paths.length === 1 || (await exists(path))) parts.push(await readConfig(path));
  if (parts.length === 0) {
    throw new KubeConfigError("not-found", `none of the files of $KUBECONFIG exists: ${paths.join(", ")}`);
  }
  return connectionOf(mergeKubeConfigs(parts), { ...options, env });
}

async function fromHome(options: LoadKubeConfigOptions, env: Env): Promise<KubeConnection | undefined> {
  const path = join(env["HOME"] ?? homedir(), ".kube", "config");
  return (await exists(path)) ? connectionOf(await readConfig(path), { ...options, env }) : undefined;
}

async function inCluster(options: LoadKubeConfigOptions, env: Env): Promise<KubeConnection> {
  const host = env["KUBERNETES_SERVICE_HOST"];
  const port = env["KUBERNETES_SERVICE_PORT"];
  if (host === undefined || host === "" || port === undefined || port === "") {
    throw new KubeConfigError(
      "not-found",
      "this process does not run in a cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; give a kubeconfig instead",
    );
  }
  const server = URL.parse(`https://${host.includes(":") ? `[${host}]` : host}:${port}`);
  if (server === null) {
    throw new KubeConfigError("invalid", `KUBERNETES_SERVICE_HOST "${host}" and port "${port}" do not form a URL`);
  }
  const directory = options.serviceAccountDir ?? SERVICE_ACCOUNT_DIR;
  const clock = options.clock;
  const token = new CachedFile(join(directory, "token"), "the service account", clock);
  const ca = new CachedFile(join(directory, "ca.crt"), "the service account", clock);
  const namespace = new CachedFile(join(directory, "namespace"), "the service account", clock);
  // The files are read now, so that a missing one is reported before the first call.
  await Promise.all([token.read(), ca.read()]);
  return connect({
    source: directory,
    server,
    proxyTo: proxyBy(directory, env),
    namespace: (await exists(join(directory, "namespace"))) ? (await namespace.read()).trim() : "default",
    ca,
    token,
  });
}

async function readConfig(path: string): Promise<KubeConfigParts> {
  try {
    const { size } = await stat(path);
    if (size > MAX_KUBECONFIG_BYTES) {
      throw new KubeConfigError(
        "invalid",
        `kubeconfig ${path} has ${size} bytes; the maximum is ${MAX_KUBECONFIG_BYTES} bytes`,
      );
    }
    const { parseKubeConfig } = await import("./kubeconfig-parse.ts");
    return parseKubeConfig(path, await readFile(path, "utf8"));
  } catch (cause) {
    if (cause instanceof KubeConfigError) throw cause;
    const fix = "give the path of a readable file with --kubeconfig or $KUBECONFIG";
    throw new KubeConfigError("unreadable", `Cannot read kubeconfig ${path}: ${describeError(cause)}; ${fix}`, {
      cause,
    });
  }
}

async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (error instanceof Error && "code" in error && (error.code === "ENOENT" || error.code === "ENOTDIR"))
      return false;
    throw new KubeConfigError("unreadable", `Cannot read ${path}: ${describeError(error)}`, { cause: error });
  }
}
