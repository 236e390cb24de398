import { execFile } from "node:child_process";
import { access, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { type ApiServer, startApiServer } from "#lab/api-server";

/** Output and exit code of a command. */
export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** Options for running kubectl, besides its arguments. */
export interface RunOptions {
  readonly stdin?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/** The group of the suite's own custom resource, unique to the process. */
export const GROUP = `conformance-${process.pid}.isthmus.dev`;

const UNPACKED = join(import.meta.dirname, "../../.state");
const KUBECTL = process.env["ISTHMUS_KUBECTL"] ?? join(UNPACKED, "debian/usr/bin/kubectl");
/** The kubectl of Debian's unstable release. */
export const SID_KUBECTL = join(UNPACKED, "debian-sid/usr/bin/kubectl");

/** The reason why the suite cannot run here; false if it can. */
export async function whyNotRunnable(kubectl = KUBECTL): Promise<string | false> {
  try {
    await access(kubectl);
    return false;
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    if (kubectl === SID_KUBECTL) return "package: kubectl of Debian sid could not be fetched";
    return `no kubectl at ${kubectl}: install Debian's package kubernetes-client (./run setup does), or set ISTHMUS_KUBECTL`;
  }
}

/** kubectl with a cluster to connect to and a namespace of its own in it. */
export class Cluster implements AsyncDisposable {
  readonly namespace: string;
  readonly folder: string;
  readonly #kubeconfig: string;
  readonly #server: ApiServer | undefined;
  readonly #kubectl: string;

  constructor(folder: string, kubeconfig: string, server: ApiServer | undefined, suite: string, kubectl: string) {
    this.folder = folder;
    this.#kubectl = kubectl;
    this.#kubeconfig = kubeconfig;
    this.#server = server;
    this.namespace = `conformance-${suite}-${process.pid}`;
  }

  /** The cluster of ISTHMUS_KUBECONFIG, or else the embedded server over TLS with a token. */
  static async open(suite: string, kubectl = KUBECTL): Promise<Cluster> {
    const folder = await mkdtemp(join(tmpdir(), "isthmus-conformance-"));
    const given = process.env["ISTHMUS_KUBECONFIG"];
    let server: ApiServer | undefined;
    if (given === undefined) {
      const tokens = { "conformance-token": { name: "conformance", groups: ["system:masters"] } };
      server = await startApiServer({
        listen: { host: "127.0.0.1", port: 0 },
        tls: "self-signed",
        tokens,
        log: nullLogger,
        clock: systemClock,
      });
    }
    const text = server?.kubeconfig() ?? (await readFile(given ?? "", "utf8"));
    const path = join(folder, "kubeconfig");
    await writeFile(path, text, { mode: 0o600 });
    const cluster = new Cluster(folder, path, server, suite, kubectl);
    try {
      await cluster.apply({ apiVersion: "v1", kind: "Namespace", metadata: { name: cluster.namespace } });
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
    return cluster;
  }

  /** Runs kubectl in the suite's namespace and fails the test if it fails. Returns its output. */
  async run(args: readonly string[], options: RunOptions = {}): Promise<string> {
    const outcome = await this.try(args, options);
    if (outcome.code !== 0)
      throw new Error(`kubectl ${args.join(" ")} ended with ${outcome.code}:\n${outcome.stdout}${outcome.stderr}`);
    return outcome.stdout;
  }

  /** The whole command line and environment for running kubectl in the suite's namespace. */
  command(args: readonly string[]): { readonly command: readonly string[]; readonly env: Record<string, string> } {
    // kubectl lives too briefly for its garbage to matter: a quarter of its start is collecting it.
    const env = { PATH: process.env["PATH"] ?? "", HOME: this.folder, KUBECONFIG: this.#kubeconfig, GOGC: "400" };
    return { command: [this.#kubectl, "--namespace", this.namespace, ...args], env };
  }

  /** Runs kubectl, which may fail. */
  try(args: readonly string[], options: RunOptions = {}): Promise<Outcome> {
    const { command, env: base } = this.command(args);
    const env = { ...base, ...options.env };
    return new Promise((resolve) => {
      const child = execFile(
        this.#kubectl,
        command.slice(1),
        { env, maxBuffer: 32 * 1024 * 1024, timeout: 60_000 },
        (error, stdout, stderr) => {
          const code = error === null ? 0 : typeof error.code === "number" ? error.code : 1;
          resolve({ code, stdout, stderr });
        },
      );
      child.stdin?.end(options.stdin ?? "");
    });
  }

  /** Applies a manifest given as an object. */
  async apply(object: object, ...args: readonly string[]): Promise<string> {
    return this.run(["apply", "-f", "-", ...args], { stdin: JSON.stringify(object) });
  }

  /** Reads an object. */
  async get(...args: readonly string[]): Promise<Record<string, unknown>> {
    return JSON.parse(await this.run(["get", ...args, "-o", "json"])) as Record<string, unknown>;
  }

  /** Reads one value by jsonpath. */
  async value(what: readonly string[], path: string): Promise<string> {
    return this.run(["get", ...what, "-o", `jsonpath=${path}`]);
  }

  /** Waits until the named objects are deleted. No effect if they do not exist. */
  async gone(...what: readonly string[]): Promise<void> {
    const outcome = await this.try(["wait", "--for=delete", ...what, "--timeout=20s"]);
    if (outcome.code !== 0 && !/not found|NotFound|no matching resources found/.test(outcome.stderr)) {
      throw new Error(`waiting until ${what.join(" ")} is gone: ${outcome.stderr}`);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#server === undefined) await this.try(["delete", "namespace", this.namespace, "--wait=false"]);
    await this.#server?.stop();
    await rm(this.folder, { recursive: true, force: true });
  }
}

/** The CustomResourceDefinition that the suite brings. */
export function widgetDefinition(suite: string): {
  readonly metadata: { readonly name: string };
  readonly [key: string]: unknown;
} {
  const group = `${suite}.${GROUP}`;
  const part = {
    type: "object",
    required: ["name"],
    properties: { name: { type: "string" }, value: { type: "string" } },
  };
  return {
    apiVersion: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    metadata: { name: `widgets.${group}` },
    spec: {
      group,
      scope: "Namespaced",
      names: { plural: "widgets", kind: "Widget", shortNames: ["wdg"] },
      versions: [
        {
          name: "v1",
          served: true,
          storage: true,
          subresources: {
            status: {},
            scale: { specReplicasPath: ".spec.replicas", statusReplicasPath: ".status.replicas" },
          },
          additionalPrinterColumns: [
            { name: "Size", type: "integer", jsonPath: ".spec.size" },
            { name: "Color", type: "string", jsonPath: ".spec.color", priority: 1 },
          ],
          schema: {
            openAPIV3Schema: {
              type: "object",
              description: "Widget is what the suite makes.",
              required: ["spec"],
              properties: {
                spec: {
                  type: "object",
                  required: ["size"],
                  properties: {
                    size: { type: "integer", minimum: 1, description: "How big it is, in cubits." },
                    color: { type: "string", enum: ["red", "blue"], default: "red" },
                    replicas: { type: "integer", default: 1 },
                    port: { "x-kubernetes-int-or-string": true },
                    free: { type: "object", "x-kubernetes-preserve-unknown-fields": true },
                    parts: {
                      type: "array",
                      "x-kubernetes-list-type": "map",
                      "x-kubernetes-list-map-keys": ["name"],
                      items: part,
                    },
                  },
                },
                status: {
                  type: "object",
                  properties: { replicas: { type: "integer" }, phase: { type: "string" } },
                },
              },
            },
          },
        },
      ],
    },
  };
}

/** A widget. */
export function widget(suite: string, name: string, spec: object): object {
  return { apiVersion: `${suite}.${GROUP}/v1`, kind: "Widget", metadata: { name }, spec };
}

/** A ConfigMap. */
export function configMap(
  name: string,
  data: Readonly<Record<string, string>>,
  labels?: Readonly<Record<string, string>>,
): object {
  // No empty labels: a server that drops them causes a difference for the client on every apply.
  return { apiVersion: "v1", kind: "ConfigMap", metadata: { name, ...(labels === undefined ? {} : { labels }) }, data };
}

/** A Deployment that no controller needs to act on. */
export function deployment(name: string, replicas: number, image = "registry.invalid/app:1"): object {
  const labels = { app: name };
  return {
    apiVersion: "apps/v1",
    kind: "Deployment",
    metadata: { name, labels },
    spec: {
      replicas,
      selector: { matchLabels: labels },
      template: {
        metadata: { labels },
        spec: { containers: [{ name: "main", image, ports: [{ containerPort: 80 }] }] },
      },
    },
  };
}
