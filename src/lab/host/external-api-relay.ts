import { readFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { dirname, resolve } from "node:path";
import { parse, stringify } from "yaml";
import { systemClock } from "#base/clock";
import type { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { loadKubeConfig } from "#kube/client";
import { LabError } from "./errors.ts";
import { keepPluginCredentials, type PluginCredentials } from "./plugin-credentials.ts";

/** Relays the nodes' connections to an API server that only this machine can reach. */
export interface ExternalApiRelay extends AsyncDisposable {
  readonly server: string;
  readonly localKubeconfig: string;
  readonly nodeKubeconfig: string;
}

/** Fields that name files, which may be relative to the kubeconfig. */
const FILE_FIELDS = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];
/** Fields of a user with which its plugin is not run. */
const STATIC_FIELDS = ["token", "tokenFile", "client-certificate", "client-certificate-data"];

type Fields = Record<string, unknown>;

/**
 * Relays connections on a listening socket of the fabric to the server of a kubeconfig's current context. The nodes'
 * kubeconfig names the relay, the server's own name for TLS, and in place of an exec plugin files with its credentials. Rejects with
 * {@link LabError} `start-failed`, and with `KubeConfigError` if the plugin fails.
 */
export async function openExternalApiRelay(
  deps: { readonly log: Logger },
  options: {
    readonly kubeconfig: string;
    /** The folder for the files of a plugin. */
    readonly folder: string;
    /** A listening socket. The relay owns it from now on. */
    readonly fd: number;
    readonly host: IpAddress;
    readonly port: number;
  },
): Promise<ExternalApiRelay> {
  const config = readConfig(options.kubeconfig);
  const cluster = currentCluster(config, options.kubeconfig);
  const user = current(config, "user");
  await using undo = new AsyncDisposableStack();
  const plugin = user !== undefined && isByPlugin(user) ? undo.use(await openPlugin(deps, options)) : undefined;
  const target = new URL(String(cluster["server"]));
  const sockets = new Set<Socket>();
  const relay = createServer((node) => {
    const upstream = connect(
      Number(target.port || (target.protocol === "https:" ? 443 : 80)),
      target.hostname.replaceAll(/[[\]]/g, ""),
    );
    for (const [from, to] of [
      [node, upstream],
      [upstream, node],
    ] as const) {
      sockets.add(from);
      from.pipe(to);
      from.once("error", () => to.destroy());
      from.once("close", () => {
        sockets.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((done) => relay.listen({ fd: options.fd }, done));
  const localKubeconfig = stringify(config);
  const host = options.host.family === 6 ? `[${options.host}]` : options.host.toString();
  if (user !== undefined && plugin !== undefined) {
    delete user["exec"];
    Object.assign(user, plugin.user);
  }
  cluster["tls-server-name"] ??= target.hostname.replaceAll(/[[\]]/g, "");
  cluster["server"] = `${target.protocol}//${host}:${options.port}${target.pathname.replace(/\/$/, "")}`;
  const kept = undo.move();
  return {
    server: target.href,
    localKubeconfig,
    nodeKubeconfig: stringify(config),
    async [Symbol.asyncDispose]() {
      await kept.disposeAsync();
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => relay.close(() => done()));
    },
  };
}

/** Returns true if a user's credentials are a plugin's, as in client-go. */
function isByPlugin(user: Fields): boolean {
  return Boolean(user["exec"]) && !STATIC_FIELDS.some((field) => Boolean(user[field]));
}

async function openPlugin(
  deps: { readonly log: Logger },
  { kubeconfig, folder }: { readonly kubeconfig: string; readonly folder: string },
): Promise<PluginCredentials> {
  const connection = await loadKubeConfig({ path: kubeconfig, clock: systemClock });
  return keepPluginCredentials({ ...deps, connection, clock: systemClock }, folder);
}

/** The kubeconfig with absolute paths, so that it can be written elsewhere. */
function readConfig(path: string): Fields {
  let config: unknown;
  try {
    config = parse(readFileSync(path, "utf8"));
  } catch (error) {
    const why = error instanceof Error ? error.message.split("\n")[0] : String(error);
    throw new LabError("start-failed", `--kubeconfig: ${path} cannot be read: ${why}`, { cause: error });
  }
  if (typeof config !== "object" || config === null)
    throw new LabError("start-failed", `--kubeconfig: ${path} is not a kubeconfig`);
  for (const key of ["clusters", "users"]) {
    for (const entry of listOf(config as Fields, key)) {
      const body = (entry["cluster"] ?? entry["user"]) as Fields | undefined;
      if (body === undefined) continue;
      const absolute = (fields: Fields, field: string): void => {
        const file = fields[field];
        if (typeof file === "string") fields[field] = resolve(dirname(path), file);
      };
      for (const field of FILE_FIELDS) absolute(body, field);
      // Any other command is searched in PATH.
      const exec = body["exec"] as Fields | null | undefined;
      if (typeof exec?.["command"] === "string" && exec["command"].includes("/")) absolute(exec, "command");
    }
  }
  return config as Fields;
}

/** The cluster or the user of the current context. */
function current(config: Fields, kind: "cluster" | "user"): Fields | undefined {
  const named = (list: string, name: unknown): Fields | undefined =>
    listOf(config, list).find((entry) => entry["name"] === name);
  const context = named("contexts", config["current-context"])?.["context"] as Fields | undefined;
  return named(`${kind}s`, context?.[kind])?.[kind] as Fields | undefined;
}

function currentCluster(config: Fields, path: string): Fields {
  const cluster = current(config, "cluster");
  if (cluster === undefined || !URL.canParse(String(cluster["server"]))) {
    throw new LabError("start-failed", `--kubeconfig: the current-context of ${path} has no cluster with a server`);
  }
  return cluster;
}

function listOf(config: Fields, key: string): Fields[] {
  const list = config[key];
  return Array.isArray(list) ? (list as Fields[]) : [];
}
