/**
 * A real etcd on loopback, from Debian's packages `etcd-server` and `etcd-client`, which `./run test` unpacks into `.state/debian`.
 *
 * Owns: the process, its folder, `etcdctl` on it, TLS and users. Does not know: what is stored.
 *
 * ```ts
 * await using etcd = await EtcdServer.start({ tls: true });
 * await etcd.put({ "/coil/pool/default": "{}" });
 * await etcd.authenticate("coil", "secret", "/coil/");
 * ```
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { makeCertificates } from "#lab/certificates";
import { start, until } from "#test/lab";
import { freePort } from "#test/ports";

const DEBIAN = join(import.meta.dirname, "../../.state/debian/usr/bin");
/** Etcd's own limit of operations in one transaction. */
const MAX_OPERATIONS = 100;
const ROOT = "root:root-password";

/** Disposing ends the process and removes its folder. */
export class EtcdServer implements AsyncDisposable {
  readonly url: string;
  readonly folder: string;
  /** The flags of `coil-migrator` that lead to this server. */
  readonly flags: readonly string[];
  readonly #child: ChildProcess;
  readonly #tls: readonly string[];
  #user: readonly string[] = [];

  private constructor(init: {
    readonly url: string;
    readonly folder: string;
    readonly child: ChildProcess;
    readonly files: { readonly ca: string; readonly cert: string; readonly key: string } | undefined;
  }) {
    const { url, files } = init;
    this.url = url;
    this.folder = init.folder;
    this.#child = init.child;
    this.#tls = files === undefined ? [] : [`--cacert=${files.ca}`, `--cert=${files.cert}`, `--key=${files.key}`];
    const tls =
      files === undefined
        ? []
        : [`--etcd-tls-ca=${files.ca}`, `--etcd-tls-cert=${files.cert}`, `--etcd-tls-key=${files.key}`];
    this.flags = [`--etcd-endpoints=${url}`, ...tls];
  }

  /** Resolves when it answers. With `tls`, it requires client certificates. */
  static async start(options: { readonly tls: boolean }): Promise<EtcdServer> {
    const program = join(DEBIAN, "etcd");
    if (!existsSync(program))
      throw new Error(`no etcd at ${program}: ./run test unpacks Debian's package etcd-server there`);
    const folder = mkdtempSync(join(tmpdir(), "isthmus-etcd-"));
    const scheme = options.tls ? "https" : "http";
    const [port, peerPort] = [await freePort(), await freePort()];
    const url = `${scheme}://127.0.0.1:${port}`;
    const peer = `http://127.0.0.1:${peerPort}`;
    const files = options.tls ? await certificates(folder) : undefined;
    const tls =
      files === undefined
        ? []
        : [
            `--cert-file=${files.serverCert}`,
            `--key-file=${files.serverKey}`,
            `--trusted-ca-file=${files.ca}`,
            "--client-cert-auth",
          ];
    const log = openSync(join(folder, "log"), "a");
    const child = spawn(
      program,
      [
        "--name=test",
        `--data-dir=${join(folder, "data")}`,
        `--listen-client-urls=${url}`,
        `--advertise-client-urls=${url}`,
        `--listen-peer-urls=${peer}`,
        `--initial-advertise-peer-urls=${peer}`,
        `--initial-cluster=test=${peer}`,
        ...tls,
      ],
      { stdio: ["ignore", log, log] },
    );
    const etcd = new EtcdServer({ url, folder, child, files });
    try {
      await until("etcd answers", () => etcd.#answers(), {
        seen: () => readFileSync(join(folder, "log"), "utf8").slice(-500),
      });
      return etcd;
    } catch (error) {
      await etcd[Symbol.asyncDispose]();
      throw error;
    }
  }

  /** Writes keys. */
  async put(keys: Readonly<Record<string, string>>): Promise<void> {
    const all = Object.entries(keys);
    for (let at = 0; at < all.length; at += MAX_OPERATIONS) {
      const puts = all.slice(at, at + MAX_OPERATIONS).map(([key, value]) => `put ${key} ${JSON.stringify(value)}`);
      // A transaction in etcdctl: comparisons, what to do if they hold, what otherwise.
      await this.ctl(["txn"], `\n${puts.join("\n")}\n\n\n`);
    }
  }

  /** Runs `etcdctl`; its standard output. */
  async ctl(args: readonly string[], input = ""): Promise<string> {
    const argv = [join(DEBIAN, "etcdctl"), `--endpoints=${this.url}`, ...this.#tls, ...this.#user, ...args];
    const env = { ETCDCTL_API: "3" };
    const { code, stdout, stderr } = await start(argv, { env, input: Buffer.from(input) }).ended;
    if (code !== 0) throw new Error(`etcdctl ${args.join(" ")} ended with ${code}: ${stderr}`);
    return stdout;
  }

  /** From now on only users may read; the given user may read the keys under `prefix`. */
  async authenticate(name: string, password: string, prefix: string): Promise<void> {
    await this.ctl(["user", "add", ROOT]);
    await this.ctl(["user", "grant-role", "root", "root"]);
    await this.ctl(["role", "add", "reader"]);
    await this.ctl(["role", "grant-permission", "--prefix", "reader", "read", prefix]);
    await this.ctl(["user", "add", `${name}:${password}`]);
    await this.ctl(["user", "grant-role", name, "reader"]);
    await this.ctl(["auth", "enable"]);
    this.#user = [`--user=${ROOT}`];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, "exit");
      this.#child.kill("SIGKILL");
      await ended;
    }
    rmSync(this.folder, { recursive: true });
  }

  async #answers(): Promise<boolean> {
    if (this.#child.exitCode !== null) throw new Error(`etcd ended with ${this.#child.exitCode}`);
    const argv = [`--endpoints=${this.url}`, ...this.#tls, "endpoint", "health"];
    try {
      await promisify(execFile)(join(DEBIAN, "etcdctl"), argv, { env: { ...process.env, ETCDCTL_API: "3" } });
      return true;
    } catch {
      // The request is repeated; at the deadline `until` fails with the server's log.
      return false;
    }
  }
}

async function certificates(folder: string) {
  const { ca, pairs } = makeCertificates("etcd-ca", {
    server: { usages: ["serverAuth"], commonName: "etcd", hosts: ["127.0.0.1"] },
    client: { usages: ["clientAuth"], commonName: "nobody", hosts: [] },
  });
  const write = (name: string, text: string): string => {
    const path = join(folder, name);
    writeFileSync(path, text, { mode: 0o600 });
    return path;
  };
  return {
    ca: write("ca.crt", ca),
    serverCert: write("server.crt", pairs.server.cert),
    serverKey: write("server.key", pairs.server.key),
    cert: write("client.crt", pairs.client.cert),
    key: write("client.key", pairs.client.key),
  };
}
