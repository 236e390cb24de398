/**
 * A cluster of one node for the shipped `service-proxy`: the embedded API server with a Node and a Service `default/web`, and the
 * namespaces of `Bed` for packets. Needs root and a build.
 *
 * Owns: {@link ServiceBed}. Does not know: what is tested.
 *
 * ```ts
 * await using cluster = await ServiceBed.open("mine", { service: { type: "NodePort", ...ports } });
 * const proxy = cluster.startProxy("--min-sync-period=0s");
 * ```
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { nullLogger } from "#base/log";
import { KubeClient, loadKubeConfig, resources, type Service } from "#kube/client";
import { type ApiServer, startApiServer } from "#lab/api-server";
import { accountOf, LAB_RIGHTS } from "#lab/host";
import { ISTHMUS, type Running, start } from "#test/lab";
import { Bed } from "../../src/features/service-proxy/testing/bed.ts";
import { addressesOf, SERVICE_PORT, TARGET_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

/** The node under test. */
export const NODE = "node-a";
const FAMILIES = [4, 6] as const;
/** NodePort of the Service, if it has one. */
export const NODE_PORT = 30_080;
/** The Service's only port. */
export const PORTS: NonNullable<NonNullable<Service["spec"]>["ports"]> = [
  { name: "http", port: SERVICE_PORT, protocol: "TCP", targetPort: TARGET_PORT, nodePort: NODE_PORT },
];

/** An endpoint of a slice. */
export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly conditions: { readonly ready: boolean; readonly serving?: boolean; readonly terminating?: boolean };
  readonly nodeName?: string;
}

/** Options of a bed. */
export interface ServiceBedOptions {
  /** Finalizers of the Node. */
  readonly finalizers?: readonly string[];
  /** Spec of the Service `default/web`, besides {@link PORTS}. */
  readonly service: Omit<NonNullable<Service["spec"]>, "ports">;
}

/** Disposing removes everything except proxies that still run. */
export class ServiceBed implements AsyncDisposable {
  readonly server: ApiServer;
  readonly client: KubeClient;
  readonly bed: Bed;
  /** Folder of temporary files. */
  readonly folder: string;
  readonly #prefix: string;

  private constructor(prefix: string, parts: Pick<ServiceBed, "server" | "client" | "bed" | "folder">) {
    this.#prefix = prefix;
    this.server = parts.server;
    this.client = parts.client;
    this.bed = parts.bed;
    this.folder = parts.folder;
  }

  /** `prefix` names the namespaces. */
  static async open(prefix: string, options: ServiceBedOptions): Promise<ServiceBed> {
    const folder = mkdtempSync(join(tmpdir(), `${prefix}-`));
    const cidrs = FAMILIES.map((family) => addressesOf(family).serviceCIDR);
    const serviceRanges = { cidrs, nodePorts: { first: 30_000, last: 32_767 } };
    const server = await startApiServer({
      listen: { host: "127.0.0.1", port: 0 },
      serviceRanges,
      tokens: { admin: { name: "admin", groups: ["system:masters"] }, proxy: accountOf("service-proxy") },
      log: nullLogger,
      clock: systemClock,
    });
    server.seed(LAB_RIGHTS);
    const kubeconfig = join(folder, "admin-kubeconfig");
    writeFileSync(kubeconfig, server.kubeconfig({ token: "admin" }));
    writeFileSync(join(folder, "kubeconfig"), server.kubeconfig({ token: "proxy" }));
    const client = new KubeClient(await loadKubeConfig({ path: kubeconfig, clock: systemClock }), {
      clock: systemClock,
    });
    const cluster = new ServiceBed(prefix, { server, client, bed: await Bed.open(prefix), folder });
    await cluster.#fill(options);
    return cluster;
  }

  /** The name of a machine's namespace. */
  netnsName(machine: "node" | "external"): string {
    return `${this.#prefix}-${machine}`;
  }

  /** Starts the built program for the node, with the rights of its account. */
  startProxy(...flags: string[]): Running {
    return this.startProxyWith([`--kubeconfig=${join(this.folder, "kubeconfig")}`, "--min-sync-period=0s", ...flags]);
  }

  /** Starts it with the node's name and namespace, and these flags. */
  startProxyWith(flags: readonly string[]): Running {
    const place = [`--hostname-override=${NODE}`, `--netns=/run/netns/${this.netnsName("node")}`];
    return start([ISTHMUS, "service-proxy", ...place, ...flags], { timeoutMs: 120_000 });
  }

  /** A kubeconfig of a server that does not exist. */
  lostKubeconfig(): string {
    const path = join(this.folder, "lost");
    writeFileSync(path, this.server.kubeconfig({ token: "proxy" }).replace(/127\.0\.0\.1:\d+/, "127.0.0.1:9"));
    return path;
  }

  /** Runs nft(8) on the node. */
  nft(words: readonly string[], input?: string): string {
    const argv = ["netns", "exec", this.netnsName("node"), "nft", ...words];
    return execFileSync("ip", argv, { encoding: "utf8", ...(input === undefined ? {} : { input }) });
  }

  /** Replaces the endpoints of the Service in a family. */
  async setEndpoints(family: IpFamily, endpoints: readonly SliceEndpoint[]): Promise<void> {
    const ref = { name: `web-${family}`, namespace: "default" };
    const body = {
      metadata: { ...ref, labels: { "kubernetes.io/service-name": "web" } },
      addressType: `IPv${family}`,
      ports: [{ name: "http", port: TARGET_PORT, protocol: "TCP" }],
      endpoints,
    };
    const how = { type: "apply", body, fieldManager: "test", force: true } as const;
    await this.client.patch(resources.endpointSlices, ref, how);
  }

  async #fill({ finalizers = [], service }: ServiceBedOptions): Promise<void> {
    const { client } = this;
    await client.create(resources.nodes, { metadata: { name: NODE, finalizers: [...finalizers] } });
    const addresses = FAMILIES.map((family) => ({ type: "InternalIP", address: String(addressesOf(family).node) }));
    const how = { type: "merge", body: { status: { addresses } } } as const;
    await client.patch(resources.nodes, { name: NODE }, how, { subresource: "status" });
    const metadata = { name: "web", namespace: "default" };
    await client.create(resources.services, { metadata, spec: { ...service, ports: PORTS } });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.client.close();
    await this.bed[Symbol.asyncDispose]();
    await this.server[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true });
  }
}
