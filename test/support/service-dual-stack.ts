/**
 * The cluster of `ServiceBed` with a Service of both families, six endpoints in each, all alive: for tests of connections
 * during events.
 *
 * Owns: {@link DualStackBed}. Does not know: what happens.
 *
 * ```ts
 * await using cluster = await DualStackBed.open("mine");
 * const proxy = cluster.startProxy();
 * await cluster.untilReached();
 * ```
 */
import { IpAddress, type IpFamily } from "#base/ip";
import { connectInside, request } from "#lab/inside";
import { type Running, until } from "#test/lab";
import { ServiceBed } from "#test/service-bed";
import { addressesOf, SERVICE_PORT } from "../../src/features/service-proxy/testing/fixture.ts";

/** Both families. */
export const FAMILIES = [4, 6] as const;
/** Ranges of the pods, for `--cluster-cidr`. */
export const PODS = "10.180.0.0/16,fd00:10:180::/48";
const ENDPOINTS = 6;

/** Disposing removes everything except proxies that still run. */
export class DualStackBed implements AsyncDisposable {
  readonly inner: ServiceBed;
  readonly endpoints: Readonly<Record<IpFamily, readonly IpAddress[]>>;

  private constructor(inner: ServiceBed, endpoints: DualStackBed["endpoints"]) {
    this.inner = inner;
    this.endpoints = endpoints;
  }

  /** `prefix` names the namespaces. */
  static async open(prefix: string): Promise<DualStackBed> {
    const clusterIPs = FAMILIES.map((family) => addressesOf(family).clusterIP.toString());
    const families = { ipFamilies: ["IPv4", "IPv6"], ipFamilyPolicy: "RequireDualStack" };
    const service = { clusterIP: addressesOf(4).clusterIP.toString(), clusterIPs, type: "NodePort", ...families };
    const inner = await ServiceBed.open(prefix, { service });
    const { bed } = inner;
    const endpoints = { 4: await bed.serveMore(4, ENDPOINTS), 6: await bed.serveMore(6, ENDPOINTS) };
    const cluster = new DualStackBed(inner, endpoints);
    await cluster.setEndpoints((all) => all);
    return cluster;
  }

  startProxy(...flags: string[]): Running {
    return this.inner.startProxy(`--cluster-cidr=${PODS}`, ...flags);
  }

  /** Runs nft(8) on the node. */
  nft(...words: string[]): string {
    return this.inner.nft(words);
  }

  /** Chooses the endpoints of the Service, in both families. */
  async setEndpoints(choose: (addresses: readonly IpAddress[]) => readonly IpAddress[]): Promise<void> {
    for (const family of FAMILIES) {
      const addresses = choose(this.endpoints[family]).map(String);
      const conditions = { ready: true };
      await this.inner.setEndpoints(
        family,
        addresses.map((address) => ({ addresses: [address], conditions })),
      );
    }
  }

  /** Result of a connection from outside to the cluster IP. */
  async reach(family: IpFamily): Promise<"delivered" | "dropped" | "rejected"> {
    return (await this.inner.bed.connect("external", addressesOf(family).clusterIP, SERVICE_PORT)).kind;
  }

  untilReached(): Promise<void> {
    const both = async (): Promise<boolean> =>
      (await this.reach(4)) === "delivered" && (await this.reach(6)) === "delivered";
    return until("the Service answers in both families", both);
  }

  /** Metrics of the running proxy. */
  async metrics(): Promise<string> {
    const at = { address: IpAddress.parse("127.0.0.1"), port: 10_249 };
    const socket = await connectInside({ name: this.inner.netnsName("node") }, at, { timeoutMs: 1000 });
    return (await request(socket, { path: "/metrics", host: "node" }, { timeoutMs: 1000 })).body;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.inner[Symbol.asyncDispose]();
  }
}

/** Ends a proxy and returns its exit code. */
export async function stopProxy(proxy: Running, signal: NodeJS.Signals = "SIGTERM"): Promise<number | null> {
  proxy.child.kill(signal);
  return (await proxy.ended).code;
}

/** Makes connections in both families, several at a time and without a pause, until it is stopped. */
export class ConnectLoad {
  connections = 0;
  readonly failures: string[] = [];
  #isDone = false;
  readonly #running: Promise<unknown>;

  constructor(cluster: DualStackBed, { each = 1 }: { readonly each?: number } = {}) {
    const one = async (family: IpFamily): Promise<void> => {
      while (!this.#isDone) {
        const kind = await cluster.reach(family);
        this.connections += 1;
        if (kind !== "delivered") this.failures.push(`IPv${family} ${kind}`);
      }
    };
    this.#running = Promise.all(FAMILIES.flatMap((family) => Array.from({ length: each }, () => one(family))));
  }

  /** Waits until this number of further connections were made. */
  async more(count: number): Promise<void> {
    const before = this.connections;
    await until(`${count} more connections are made`, () => this.connections >= before + count);
  }

  async stop(): Promise<void> {
    this.#isDone = true;
    await this.#running;
  }
}
