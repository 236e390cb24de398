/**
 * The shipped controller of NICs between the embedded API server and a real Neutron, with the rights of the manifests.
 *
 * Owns: the API server, starting and killing controllers. Does not know: the tests.
 *
 * ```ts
 * const bed = await NicBed.open(t);
 * bed.run();
 * const uid = await bed.pod("a", { "isthmus.dev/vpc": "vpc-1" });
 * await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
 * ```
 */
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { Deferred } from "#base/async";
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { isKubeError, KubeClient, type KubeObject, loadKubeConfig, resources } from "#kube/client";
import { nicCrds, nicResources } from "#kube/nic";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import type { NeutronApi } from "#lab/neutron";
import { ISTHMUS, type Running, start } from "#test/lab";
import { HttpProxy, type SeenRequest } from "./neutron-proxy.ts";
import { NeutronServer, type NeutronServerOptions } from "./neutron-server.ts";
import { NicCluster } from "./nic-cluster.ts";

/** The scope that cleans up after a test or a suite. */
interface Scope {
  after(cleanUp: () => unknown): void;
}

/** The part of a Neutron that the bed uses. */
export type BedNeutron = NeutronApi & AsyncDisposable;

export interface NicBedOptions extends NeutronServerOptions {
  /** Fields of the network `vpc-1`. */
  readonly network?: object;
  /** A server that tests share. */
  readonly shared?: NeutronServer;
}

export class NicBed<Neutron extends BedNeutron = NeutronServer> extends NicCluster<Neutron> {
  readonly server: ApiServer;
  readonly proxy: HttpProxy;
  readonly folder: string;
  readonly #running: Running[] = [];
  /** The path of the kubeconfig of the bed. */
  readonly #kubeconfig: string;

  private constructor(parts: {
    server: ApiServer;
    api: KubeClient;
    neutron: Neutron;
    proxy: HttpProxy;
    folder: string;
    kubeconfig: string;
  }) {
    super(parts);
    this.server = parts.server;
    this.proxy = parts.proxy;
    this.folder = parts.folder;
    this.#kubeconfig = parts.kubeconfig;
  }

  /**
   * A cluster without pods, a node `node-1` with an agent in Neutron, and a network `vpc-1` with the subnet 192.168.0.0/16. With `shared` it is on
   * that server, which is emptied before and stays.
   */
  static async open(scope: Scope, { network = {}, shared, ...options }: NicBedOptions = {}): Promise<NicBed> {
    shared?.restore();
    const bed = await NicBed.on(scope, shared ?? NeutronServer.start(options), { isShared: shared !== undefined });
    await bed.api.create(resources.nodes, { metadata: { name: "node-1" } });
    bed.neutron.addAgent("node-1");
    await bed.neutron.makeNetwork({ name: "vpc-1", ...network }, ["192.168.0.0/16"]);
    return bed;
  }

  /** A cluster without pods and nodes, on a Neutron that is starting; the bed disposes it unless it is shared. */
  static async on<Neutron extends BedNeutron>(
    scope: Scope,
    starting: Neutron | Promise<Neutron>,
    { isShared = false } = {},
  ): Promise<NicBed<Neutron>> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-nics-"));
    const account = (name: string) => ({
      name: `system:serviceaccount:kube-system:${name}`,
      groups: ["system:serviceaccounts", "system:authenticated"],
    });
    const [server, neutron] = await Promise.all([
      startApiServer({
        listen: [{ host: "127.0.0.1", port: 0 }],
        tokens: {
          admin: { name: "admin", groups: ["system:masters"] },
          controller: account("nic-controller"),
        },
        log: nullLogger,
        clock: systemClock,
      }),
      starting,
    ]);
    const proxy = await HttpProxy.open(neutron.url);
    const configOf = (token: string): string => {
      const path = join(folder, token);
      writeFileSync(path, server.kubeconfig({ token }));
      return path;
    };
    const api = new KubeClient(await loadKubeConfig({ path: configOf("admin"), clock: systemClock }), {
      clock: systemClock,
    });
    const bed = new NicBed({ server, api, neutron, proxy, folder, kubeconfig: configOf("controller") });
    scope.after(async () => {
      try {
        await bed.#close();
      } finally {
        if (!isShared) await neutron[Symbol.asyncDispose]();
      }
    });
    server.seed(nicCrds as unknown as readonly SeedObject[]);
    for (const file of ["rbac.yaml", "policy.yaml", "agent.yaml"]) {
      const rights = readFileSync(join(import.meta.dirname, "../../deploy/nics", file), "utf8");
      server.seed(parseAllDocuments(rights).map((one) => one.toJS() as SeedObject));
    }
    await bed.policy({});
    bed.writeCredentials();
    return bed;
  }

  /** Writes the file that controllers read; by default requests go through the proxy. */
  writeCredentials(endpoint = this.proxy.url): void {
    this.writeCloud({ auth_type: "none", auth: { endpoint: endpoint.href } });
  }

  /** Writes the file that controllers read: one cloud of a clouds.yaml, which is read as JSON too. */
  writeCloud(cloud: object): void {
    writeFileSync(join(this.folder, "clouds.yaml"), JSON.stringify({ clouds: { test: cloud } }));
  }

  /** All that controllers have logged, and all that is in the API server for people to read. */
  async everythingSaid(): Promise<string> {
    const lists = [nicResources.nicClaims, resources.events, resources.pods, nicResources.nicPolicies];
    const objects = await Promise.all(lists.map(async (type) => (await this.api.listAll<KubeObject>(type)).items));
    return `${this.#running.map((one) => one.said()).join("")}${JSON.stringify(objects)}`;
  }

  /** Starts a controller. */
  run(...flags: readonly string[]): Running {
    const one = start(
      [
        ISTHMUS,
        "nic-controller",
        `--kubeconfig=${this.#kubeconfig}`,
        `--credentials=${join(this.folder, "clouds.yaml")}`,
        "--cluster-id=c1",
        "--webhook-addr=none",
        "--metrics-addr=127.0.0.1:0",
        "--health-addr=127.0.0.1:0",
        ...flags,
      ],
      { timeoutMs: 600_000 },
    );
    this.#running.push(one);
    return one;
  }

  /** Kills a controller. Its Lease goes as if it had expired. */
  async kill(one: Running): Promise<void> {
    one.child.kill("SIGKILL");
    await one.ended;
    await this.freeLease();
  }

  /** Waits until the controller meets the request, kills it there, and lets it end as if nobody had waited for it. */
  killAt(one: Running, isMeant: (request: SeenRequest) => boolean, point: "before" | "after"): Promise<void> {
    const killed = new Deferred();
    let isDone = false;
    const kill = async (): Promise<void> => {
      isDone = true;
      await this.kill(one);
      killed.resolve();
    };
    this.proxy.rule = async (request) => {
      if (isDone || point !== "before" || !isMeant(request)) return "pass";
      await kill();
      return "lose-request";
    };
    this.proxy.onAnswer = async (request) => {
      if (isDone || point !== "after" || !isMeant(request)) return;
      await kill();
    };
    return killed.promise;
  }

  async freeLease(): Promise<void> {
    try {
      await this.api.delete(resources.leases, { namespace: "kube-system", name: "nic-controller-leader" });
    } catch (error) {
      if (!isKubeError(error, "not-found")) throw error;
    }
  }

  override logs(): string {
    return this.#running.map((one) => one.said().slice(-3000)).join("\n--\n");
  }

  async #close(): Promise<void> {
    for (const one of this.#running) one.child.kill("SIGKILL");
    await Promise.all(this.#running.map((one) => one.ended));
    await this.api.close();
    await this.server[Symbol.asyncDispose]();
    await this.proxy[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true, force: true });
    for (const one of this.#running) assert.doesNotMatch(one.said(), /forbidden|because of a bug/);
  }
}
