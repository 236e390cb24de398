import { readFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { dirname, resolve } from "node:path";
import { parse, stringify } from "yaml";
import type { IpAddress } from "#base/ip";
import { LabError } from "./errors.ts";

/** Relays the nodes' connections to an API server that only this machine can reach. */
export interface ExternalApiRelay extends AsyncDisposable {
  readonly server: string;
  readonly localKubeconfig: string;
  readonly nodeKubeconfig: string;
}

/** Fields that name files, which may be relative to the kubeconfig. */
const FILE_FIELDS = ["certificate-authority", "client-certificate", "client-key", "tokenFile"];

type Fields = Record<string, unknown>;

/**
 * Relays connections on a listening socket of the fabric to the server of a kubeconfig's current context. The nodes'
 * kubeconfig names the relay, and the server's own name for TLS. Rejects with {@link LabError} `start-failed`.
 */
export async function openExternalApiRelay(options: {
  readonly kubeconfig: string;
  /** A listening socket. The relay owns it from now on. */
  readonly fd: number;
  readonly host: IpAddress;
  readonly port: number;
}): Promise<ExternalApiRelay> {
  const config = readConfig(options.kubeconfig);
  const cluster = currentCluster(config, options.kubeconfig);
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
  cluster["tls-server-name"] ??= target.hostname.replaceAll(/[[\]]/g, "");
  cluster["server"] = `${target.protocol}//${host}:${options.port}${target.pathname.replace(/\/$/, "")}`;
  return {
    server: target.href,
    localKubeconfig,
    nodeKubeconfig: stringify(config),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise<void>((done) => relay.close(() => done()));
    },
  };
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
      for (const field of FILE_FIELDS) {
        const file = body?.[field];
        if (body !== undefined && typeof file === "string") body[field] = resolve(dirname(path), file);
      }
    }
  }
  return config as Fields;
}

function currentCluster(config: Fields, path: string): Fields {
  const context = listOf(config, "contexts").find((entry) => entry["name"] === config["current-context"])?.[
    "context"
  ] as Fields | undefined;
  const cluster = listOf(config, "clusters").find((entry) => entry["name"] === context?.["cluster"])?.["cluster"] as
    | Fields
    | undefined;
  if (cluster === undefined || !URL.canParse(String(cluster["server"]))) {
    throw new LabError("start-failed", `--kubeconfig: the current-context of ${path} has no cluster with a server`);
  }
  return cluster;
}

function listOf(config: Fields, key: string): Fields[] {
  const list = config[key];
  return Array.isArray(list) ? (list as Fields[]) : [];
}
