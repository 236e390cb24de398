import { execFile } from "node:child_process";
import { dirname, resolve } from "node:path";
import { type AbortOptions, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import { callersEnvironment } from "#base/environment";
import { describeError } from "#base/errors";
import { KubeConfigError } from "./errors.ts";
import type { Fields } from "./kubeconfig.ts";
import { isRecord } from "./response.ts";

const VERSIONS = ["client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"];
const PLUGIN_TIMEOUT_MS = 60_000;
const MAX_PLUGIN_OUTPUT_BYTES = 1024 * 1024;
/** Credentials are renewed at this time before they expire, in milliseconds. */
const EXPIRY_MARGIN_MS = 10_000;

/** The credentials of a plugin. */
export interface ExecCredential {
  readonly token: string | undefined;
  readonly cert: string | undefined;
  readonly key: string | undefined;
  /** The time of expiry, milliseconds since the epoch; absent: the credentials are used until the server refuses them. */
  readonly expiresAtMs: number | undefined;
}

/** The cluster as a plugin receives it, with `provideClusterInfo`. */
export interface ExecClusterInfo {
  readonly server: string;
  readonly "tls-server-name"?: string;
  readonly "insecure-skip-tls-verify"?: boolean;
  readonly "certificate-authority-data"?: string;
  readonly "proxy-url"?: string;
  /** The configuration of the cluster's extension `client.authentication.k8s.io/exec`. */
  readonly config?: unknown;
}

/** A program that makes credentials (client.authentication.k8s.io), run when they are needed and cached until they expire. */
export class ExecPlugin {
  readonly #fields: Fields;
  readonly #command: string;
  readonly #args: readonly string[];
  readonly #env: Record<string, string>;
  readonly #apiVersion: string;
  readonly #cluster: () => Promise<ExecClusterInfo | undefined>;
  readonly #clock: Clock;
  #cached: ExecCredential | undefined;
  #running: Promise<ExecCredential> | undefined;

  /** Throws `invalid` or `unsupported` for a configuration that cannot work. */
  constructor(fields: Fields, cluster: () => Promise<ExecClusterInfo>, clock: Clock) {
    this.#fields = fields;
    this.#clock = clock;
    this.#apiVersion = fields.string("apiVersion") ?? "";
    if (!VERSIONS.includes(this.#apiVersion)) {
      throw fields.invalid("apiVersion", `is "${this.#apiVersion}", must be one of ${VERSIONS.join(", ")}`);
    }
    if (fields.string("interactiveMode") === "Always") {
      throw new KubeConfigError(
        "unsupported",
        `kubeconfig ${fields.file}: ${fields.path("interactiveMode")} is Always, but a daemon has no terminal; use a plugin that needs none`,
      );
    }
    const command = fields.string("command");
    if (command === undefined) throw fields.invalid("command", "is missing");
    // As in client-go, a command with a slash is relative to the kubeconfig; any other command is searched in PATH.
    this.#command = command.includes("/") ? resolve(dirname(fields.file), command) : command;
    this.#args = fields.strings("args");
    this.#env = {};
    for (const entry of fields.objects("env")) {
      const name = entry.string("name");
      if (name === undefined) throw entry.invalid("name", "is missing");
      this.#env[name] = entry.string("value") ?? "";
    }
    this.#cluster = fields.boolean("provideClusterInfo") ? cluster : async () => undefined;
  }

  /** Resolves to valid credentials. Concurrent callers share one run of the plugin. Rejects with {@link KubeConfigError} `exec-failed`. */
  async get(options: AbortOptions = {}): Promise<ExecCredential> {
    options.signal?.throwIfAborted();
    const cached = this.#cached;
    if (
      cached !== undefined &&
      (cached.expiresAtMs ?? Number.POSITIVE_INFINITY) - EXPIRY_MARGIN_MS > this.#clock.now()
    ) {
      return cached;
    }
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return unlessAborted(this.#running, options);
  }

  /** Makes the next `get` run the plugin. */
  expire(): void {
    this.#cached = undefined;
  }

  async #run(): Promise<ExecCredential> {
    const cluster = await this.#cluster();
    const info = {
      apiVersion: this.#apiVersion,
      kind: "ExecCredential",
      spec: { interactive: false, ...(cluster === undefined ? {} : { cluster }) },
    };
    const env = { ...callersEnvironment(process.env), ...this.#env, KUBERNETES_EXEC_INFO: JSON.stringify(info) };
    const output = await this.#spawn(env);
    this.#cached = parseExecCredential(this.#where, this.#apiVersion, output);
    return this.#cached;
  }

  get #where(): string {
    return `kubeconfig ${this.#fields.file}: ${this.#fields.path("command")}`;
  }

  #spawn(env: NodeJS.ProcessEnv): Promise<string> {
    return new Promise((done, fail) => {
      const child = execFile(
        this.#command,
        [...this.#args],
        { env, timeout: PLUGIN_TIMEOUT_MS, maxBuffer: MAX_PLUGIN_OUTPUT_BYTES },
        (cause, stdout, stderr) => {
          if (cause === null) return done(stdout);
          const hint = this.#fields.string("installHint")?.split("\n", 1)[0];
          const said = stderr.trim().split("\n", 1)[0] ?? "";
          const why = [describeError(cause).split("\n", 1)[0], said, hint].filter(
            (part) => part !== undefined && part !== "",
          );
          fail(
            new KubeConfigError("exec-failed", `${this.#where} ${this.#command} failed: ${why.join(": ")}`, { cause }),
          );
        },
      );
      child.stdin?.end();
    });
  }
}

/** Parses the output of a plugin. Pure. Throws {@link KubeConfigError} `exec-failed`. */
export function parseExecCredential(where: string, apiVersion: string, text: string): ExecCredential {
  const fail = (why: string): KubeConfigError =>
    new KubeConfigError("exec-failed", `${where}: the plugin's output ${why}`);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new KubeConfigError("exec-failed", `${where}: the plugin's output is not JSON`, { cause });
  }
  if (!isRecord(value) || value["kind"] !== "ExecCredential") throw fail("is not an ExecCredential");
  if (value["apiVersion"] !== apiVersion)
    throw fail(`has apiVersion ${JSON.stringify(value["apiVersion"])}, not ${apiVersion}`);
  const status = value["status"];
  if (!isRecord(status)) throw fail("has no status field");
  const text1 = (name: string): string | undefined => {
    const field = status[name];
    if (field === undefined || field === null || field === "") return undefined;
    if (typeof field !== "string") throw fail(`has a status.${name} that is not a text`);
    return field;
  };
  const token = text1("token");
  const cert = text1("clientCertificateData");
  const key = text1("clientKeyData");
  if ((cert === undefined) !== (key === undefined)) throw fail("has a certificate or key without the other");
  if (token === undefined && cert === undefined) throw fail("has neither token nor certificate");
  const expiry = text1("expirationTimestamp");
  const expiresAtMs = expiry === undefined ? undefined : Date.parse(expiry);
  if (expiresAtMs !== undefined && Number.isNaN(expiresAtMs))
    throw fail("has an expirationTimestamp that is not a time");
  return { token, cert, key, expiresAtMs };
}
