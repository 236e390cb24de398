/**
 * Kubernetes' own API server with etcd, on loopback, from the folder that ISTHMUS_PEERS names (`etcd`, `kube-apiserver`); with its
 * controllers and scheduler if a test requests them (`kube-controller-manager`, `kube-scheduler`).
 *
 * Owns: {@link RealApiServer}, {@link peersMissing}. Does not know: the tests.
 *
 * ```ts
 * test("…", { skip: peersMissing("etcd", "kube-apiserver") }, async () => {
 *   await using server = await RealApiServer.start();
 *   const client = new KubeClient(await loadKubeConfig({ path: server.kubeconfig, clock }), { clock });
 * ```
 */
import { type ChildProcess, spawn } from "node:child_process";
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { findObject, KubeClient, KubeError, loadKubeConfig, resources } from "#kube/client";
import { until } from "#test/lab";
import { freePort } from "#test/ports";

/** Users of the server: a master, one with only the rights of kube-proxy, and one without rights. */
const USERS = [
  { token: "admin-token", name: "admin", groups: "system:masters" },
  { token: "proxy-token", name: "system:kube-proxy", groups: "" },
  { token: "guest-token", name: "guest", groups: "" },
] as const;

/** The reason to skip a test that needs these programs, or false if they exist. */
export function peersMissing(...programs: readonly string[]): string | false {
  const folder = process.env["ISTHMUS_PEERS"];
  if (folder === undefined) return `package: ISTHMUS_PEERS names no folder with ${programs.join(", ")}`;
  const missing = programs.filter((name) => !existsSync(join(folder, name)));
  return missing.length === 0 ? false : `package: ${folder} has no ${missing.join(", ")}`;
}

/** The path of a program; see {@link peersMissing}. */
export function peer(name: string): string {
  return join(process.env["ISTHMUS_PEERS"] ?? "", name);
}

/** Disposing ends both programs and removes their files. */
export class RealApiServer implements AsyncDisposable {
  readonly folder: string;
  readonly port: number;
  readonly client: KubeClient;
  readonly #etcd: ChildProcess;
  readonly #controllers: readonly ChildProcess[];
  readonly #flags: readonly string[];
  #server: ChildProcess | undefined;

  private constructor(parts: {
    readonly folder: string;
    readonly port: number;
    readonly client: KubeClient;
    readonly etcd: ChildProcess;
    readonly controllers: readonly ChildProcess[];
    readonly flags: readonly string[];
  }) {
    this.folder = parts.folder;
    this.port = parts.port;
    this.client = parts.client;
    this.#etcd = parts.etcd;
    this.#controllers = parts.controllers;
    this.#flags = parts.flags;
  }

  static async start(
    options: {
      readonly serviceRange?: string;
      /** Run the controller manager and the scheduler too. Default: neither. */
      readonly controllers?: boolean;
    } = {},
  ): Promise<RealApiServer> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-real-"));
    const [client, peerPort, port] = [await freePort(), await freePort(), await freePort()];
    const url = `http://127.0.0.1:${client}`;
    const etcd = run(folder, "etcd", [
      `--data-dir=${join(folder, "etcd")}`,
      `--listen-client-urls=${url}`,
      `--advertise-client-urls=${url}`,
      `--listen-peer-urls=http://127.0.0.1:${peerPort}`,
      `--initial-advertise-peer-urls=http://127.0.0.1:${peerPort}`,
      `--initial-cluster=default=http://127.0.0.1:${peerPort}`,
      "--unsafe-no-fsync",
    ]);
    const key = join(folder, "sa.key");
    const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    writeFileSync(key, privateKey.export({ type: "pkcs1", format: "pem" }));
    const tokens = join(folder, "tokens.csv");
    writeFileSync(tokens, USERS.map(({ token, name, groups }) => `${token},${name},${name},"${groups}"\n`).join(""));
    const flags = [
      `--etcd-servers=${url}`,
      "--bind-address=127.0.0.1",
      "--advertise-address=192.0.2.1",
      `--secure-port=${port}`,
      `--cert-dir=${join(folder, "certs")}`,
      `--token-auth-file=${tokens}`,
      "--authorization-mode=RBAC",
      `--service-cluster-ip-range=${options.serviceRange ?? "10.96.0.0/16"}`,
      "--service-account-issuer=https://kubernetes.default.svc",
      `--service-account-key-file=${key}`,
      `--service-account-signing-key-file=${key}`,
      "--endpoint-reconciler-type=none",
      "--allow-privileged=true",
    ];
    for (const { token, name } of USERS) writeFileSync(join(folder, `${name}.kubeconfig`), kubeconfig(port, token));
    const connection = await loadKubeConfig({ path: join(folder, "admin.kubeconfig"), clock: systemClock });
    const controllers: ChildProcess[] = [];
    const server = new RealApiServer({
      folder,
      port,
      client: new KubeClient(connection, { clock: systemClock }),
      etcd,
      controllers,
      flags,
    });
    await server.up();
    if (options.controllers === true) {
      const common = [`--kubeconfig=${join(folder, "admin.kubeconfig")}`, "--secure-port=0", "--leader-elect=false"];
      controllers.push(
        run(folder, "kube-controller-manager", [...common, `--service-account-private-key-file=${key}`]),
        run(folder, "kube-scheduler", common),
      );
      await server.#untilServed();
    }
    return server;
  }

  /** A kubeconfig of a user; `port` replaces the server's port on loopback. */
  kubeconfigOf(user: (typeof USERS)[number]["name"], port = this.port): string {
    const path = join(this.folder, `${user}-${port}.kubeconfig`);
    writeFileSync(path, kubeconfig(port, USERS.find(({ name }) => name === user)?.token ?? ""));
    return path;
  }

  /** A kubeconfig with a token that the server has signed. */
  kubeconfigWith(token: string): string {
    const path = join(this.folder, `${randomUUID()}.kubeconfig`);
    writeFileSync(path, kubeconfig(this.port, token));
    return path;
  }

  /** Starts the API server again and waits until it is ready. */
  async up(): Promise<void> {
    const server = run(this.folder, "kube-apiserver", this.#flags);
    this.#server = server;
    const said = (): string => readFileSync(join(this.folder, "kube-apiserver.log"), "utf8").slice(-2000);
    await until("the API server is ready", () => this.#isReady(), { deadlineMs: 120_000, seen: said });
  }

  /** Kills it, like a crash; etcd continues. */
  async down(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    if (server !== undefined) await kill(server);
  }

  /** Resolves when pods can be created: the controllers have given the first namespace its service account. */
  async #untilServed(): Promise<void> {
    const said = (): string => readFileSync(join(this.folder, "kube-controller-manager.log"), "utf8").slice(-2000);
    const isServed = async (): Promise<boolean> => {
      const ref = { name: "default", namespace: "default" };
      return (await findObject(this.client, resources.serviceAccounts, ref)) !== undefined;
    };
    await until("the controllers work", isServed, { deadlineMs: 120_000, seen: said });
  }

  async #isReady(): Promise<boolean> {
    try {
      // Readiness does not include later steps of the start: roles, priorities, ranges.
      await this.client.request({ method: "GET", path: "/api/v1/namespaces/default" }, { timeoutMs: 1000 });
      await this.client.request(
        { method: "GET", path: "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node-proxier" },
        { timeoutMs: 1000 },
      );
      return true;
    } catch (error) {
      if (error instanceof KubeError) return false;
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close();
    for (const controller of this.#controllers) await kill(controller);
    await this.down();
    await kill(this.#etcd);
    rmSync(this.folder, { recursive: true });
  }
}

function run(folder: string, name: string, flags: readonly string[]): ChildProcess {
  const log = openSync(join(folder, `${name}.log`), "a");
  return spawn(peer(name), flags, { stdio: ["ignore", log, log] });
}

async function kill(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}

function kubeconfig(port: number, token: string): string {
  return JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "real", cluster: { server: `https://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
    users: [{ name: "user", user: { token } }],
    contexts: [{ name: "real", context: { cluster: "real", user: "user" } }],
    "current-context": "real",
  });
}
