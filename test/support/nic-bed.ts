/**
 * The shipped controller of NICs between the embedded API server and a real Neutron, with the rights of the manifests.
 *
 * Owns: starting and killing controllers, pods, what a node's agent writes, counting ports. Does not know: the tests.
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
import {
  type Event,
  findObject,
  isKubeError,
  KubeClient,
  type KubeObject,
  loadKubeConfig,
  type Pod,
  resources,
} from "#kube/client";
import { type NicClaim, type NicPolicySpec, type NicStatus, nicCrds, nicResources } from "#kube/nic";
import { type ApiServer, type SeedObject, startApiServer } from "#lab/api-server";
import type { NeutronApi } from "#lab/neutron";
import { ISTHMUS, type Running, start, until } from "#test/lab";
import { HttpProxy, type SeenRequest } from "./neutron-proxy.ts";
import { NeutronServer, type NeutronServerOptions } from "./neutron-server.ts";

/** How long a condition may take on a busy machine, in milliseconds. */
const DEADLINE_MS = 60_000;
const OWNER = encodeURIComponent("compute:isthmus");
export const NAMESPACE = "default";

/** What cleans up after a test or a suite. */
interface Scope {
  after(cleanUp: () => unknown): void;
}

/** One port of Neutron, as its API has it. */
export type RawPort = Readonly<Record<string, unknown>> & { readonly id: string; readonly name: string };

/** What the bed needs of a Neutron. */
export type BedNeutron = NeutronApi & AsyncDisposable;

/** Further listeners of the API server, and what it knows of callers. */
export interface BedListeners {
  /** Sockets that listen already, such as those in namespaces of nodes. */
  readonly sockets?: readonly { readonly fd: number; readonly host: string }[];
}

export interface NicBedOptions extends NeutronServerOptions {
  /** Fields of the network `vpc-1`. */
  readonly network?: object;
}

export class NicBed<Neutron extends BedNeutron = NeutronServer> {
  readonly server: ApiServer;
  readonly api: KubeClient;
  readonly neutron: Neutron;
  readonly proxy: HttpProxy;
  readonly folder: string;
  readonly #running: Running[] = [];
  /** Whether logs may have failures of rights: never. */
  readonly #kubeconfig: string;

  private constructor(parts: {
    server: ApiServer;
    api: KubeClient;
    neutron: Neutron;
    proxy: HttpProxy;
    folder: string;
    kubeconfig: string;
  }) {
    this.server = parts.server;
    this.api = parts.api;
    this.neutron = parts.neutron;
    this.proxy = parts.proxy;
    this.folder = parts.folder;
    this.#kubeconfig = parts.kubeconfig;
  }

  /** A cluster without pods, a node `node-1` with an agent in Neutron, and a network `vpc-1` with the subnet 192.168.0.0/16. */
  static async open(scope: Scope, { network = {}, ...options }: NicBedOptions = {}): Promise<NicBed> {
    const bed = await NicBed.on(scope, NeutronServer.start(options));
    await bed.api.create(resources.nodes, { metadata: { name: "node-1" } });
    bed.neutron.addAgent("node-1");
    await bed.neutron.makeNetwork({ name: "vpc-1", ...network }, ["192.168.0.0/16"]);
    return bed;
  }

  /** A cluster without pods and nodes, on a Neutron that is starting; the bed disposes it. */
  static async on<Neutron extends BedNeutron>(
    scope: Scope,
    starting: Promise<Neutron>,
    { sockets = [] }: BedListeners = {},
  ): Promise<NicBed<Neutron>> {
    const folder = mkdtempSync(join(tmpdir(), "isthmus-nics-"));
    const account = (name: string) => ({
      name: `system:serviceaccount:kube-system:${name}`,
      groups: ["system:serviceaccounts", "system:authenticated"],
    });
    const [server, neutron] = await Promise.all([
      startApiServer({
        listen: [{ host: "127.0.0.1", port: 0 }, ...sockets],
        tokens: {
          admin: { name: "admin", groups: ["system:masters"] },
          controller: account("nic-controller"),
          agent: account("nic-agent"),
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
    scope.after(() => bed.#close());
    server.seed(nicCrds as unknown as readonly SeedObject[]);
    for (const file of ["rbac.yaml", "agent.yaml"]) {
      const rights = readFileSync(join(import.meta.dirname, "../../deploy/nics", file), "utf8");
      server.seed(parseAllDocuments(rights).map((one) => one.toJS() as SeedObject));
    }
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

  async policy(spec: NicPolicySpec): Promise<void> {
    const metadata = { name: "default" };
    const known = await findObject(this.api, nicResources.nicPolicies, metadata);
    if (known === undefined) await this.api.create(nicResources.nicPolicies, { metadata, spec });
    else await this.api.replace(nicResources.nicPolicies, { ...known, spec });
  }

  /** Makes a pod with these NICs of `vpc-1`, or with any annotations; returns its uid. `node`: it is scheduled there at once. */
  async pod(
    name: string,
    {
      nics,
      node,
      vpc = "vpc-1",
      namespace = NAMESPACE,
      gates = [],
      vm,
    }: {
      nics?: readonly object[];
      node?: string;
      vpc?: string;
      namespace?: string;
      gates?: readonly string[];
      vm?: object;
    } = {},
  ): Promise<string> {
    const annotations = {
      ...(vm === undefined ? {} : { "isthmus.dev/vm": JSON.stringify(vm) }),
      "isthmus.dev/vpc": vpc,
      ...(nics === undefined ? {} : { "isthmus.dev/nics": JSON.stringify(nics) }),
    };
    const spec = {
      containers: [{ name: "c", image: "i" }],
      ...(node === undefined ? {} : { nodeName: node }),
      ...(gates.length === 0 ? {} : { schedulingGates: gates.map((gate) => ({ name: gate })) }),
    };
    const pod = await this.api.create(resources.pods, { metadata: { name, namespace, annotations }, spec });
    return pod.metadata.uid;
  }

  /** What a scheduler does. */
  async schedule(name: string, node = "node-1"): Promise<void> {
    await this.api.request({
      method: "POST",
      path: `/api/v1/namespaces/${NAMESPACE}/pods/${name}/binding`,
      body: {
        apiVersion: "v1",
        kind: "Binding",
        metadata: { name },
        target: { apiVersion: "v1", kind: "Node", name: node },
      },
    });
  }

  /** Deletes a pod as a kubelet that has ended it. */
  async deletePod(name: string): Promise<void> {
    await this.api.delete(resources.pods, { name, namespace: NAMESPACE }, { gracePeriodSeconds: 0 });
  }

  async findPod(name: string): Promise<Pod | undefined> {
    return findObject(this.api, resources.pods, { name, namespace: NAMESPACE });
  }

  /** What a node's agent tells of a pod. */
  async tell(uid: string, type: "Plugged" | "Unplugged"): Promise<void> {
    const body = {
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicClaim",
      metadata: { name: uid, namespace: NAMESPACE },
      status: { conditions: [{ type, status: "True" }] },
    };
    await this.api.patch(
      nicResources.nicClaims,
      { name: uid, namespace: NAMESPACE },
      { type: "apply", body, fieldManager: "nic-agent", force: true },
      { subresource: "status" },
    );
  }

  /** What a node's agent does and tells after a change of the claim: it has the NICs that are bound, and no others. */
  async follow(uid: string): Promise<void> {
    const { spec, status, metadata } = (await this.claim(uid)) ?? assert.fail("no claim");
    const isBound = (name: string): boolean =>
      status?.nics?.some((nic) => nic.name === name && nic.vifType === "ovs") === true;
    const nics = spec.nics.filter(({ name }) => isBound(name)).map(({ name }) => ({ name }));
    const body = {
      apiVersion: "isthmus.dev/v1alpha1",
      kind: "NicClaim",
      metadata: { name: uid, namespace: NAMESPACE },
      status: {
        conditions: [{ type: "Plugged", status: "True" }],
        plugged: { generation: metadata.generation ?? 0, nics },
      },
    };
    await this.api.patch(
      nicResources.nicClaims,
      { name: uid, namespace: NAMESPACE },
      { type: "apply", body, fieldManager: "nic-agent", force: true },
      { subresource: "status" },
    );
  }

  claim(uid: string): Promise<NicClaim | undefined> {
    return findObject(this.api, nicResources.nicClaims, { name: uid, namespace: NAMESPACE });
  }

  async claims(): Promise<readonly NicClaim[]> {
    return (await this.api.listAll(nicResources.nicClaims)).items;
  }

  /** Waits until a claim is as wanted. */
  async untilClaim(uid: string, isSo: (claim: NicClaim) => boolean, what: string = isSo.toString()): Promise<NicClaim> {
    let found: NicClaim | undefined;
    const check = async (): Promise<boolean> => {
      found = await this.claim(uid);
      return found !== undefined && isSo(found);
    };
    await until(`the claim: ${what}`, check, {
      deadlineMs: DEADLINE_MS,
      seen: () => `${JSON.stringify(found?.status)}\n${this.#logs()}`,
    });
    return found ?? assert.fail("no claim");
  }

  async untilGone(uid: string): Promise<void> {
    await this.until("the claim is gone", async () => (await this.claim(uid)) === undefined);
  }

  async until(what: string, check: () => Promise<boolean>, deadlineMs = DEADLINE_MS): Promise<void> {
    await until(what, check, { deadlineMs, seen: () => this.#logs() });
  }

  /** The ports that were made by controllers, asked of Neutron itself. */
  async ports(): Promise<readonly RawPort[]> {
    return (await this.neutron.list(`ports?device_owner=${OWNER}`)) as readonly RawPort[];
  }

  async events(podUID: string): Promise<readonly Event[]> {
    const { items } = await this.api.listAll(resources.events);
    return items.filter(({ regarding }) => regarding?.uid === podUID);
  }

  #logs(): string {
    return this.#running.map((one) => one.said().slice(-3000)).join("\n--\n");
  }

  async #close(): Promise<void> {
    for (const one of this.#running) one.child.kill("SIGKILL");
    await Promise.all(this.#running.map((one) => one.ended));
    await this.api.close();
    await this.server[Symbol.asyncDispose]();
    await this.proxy[Symbol.asyncDispose]();
    await this.neutron[Symbol.asyncDispose]();
    rmSync(this.folder, { recursive: true, force: true });
    for (const one of this.#running) assert.doesNotMatch(one.said(), /forbidden|because of a bug/);
  }
}

/** One NIC of a claim. */
export function nicOf({ status }: NicClaim, name = "eth0"): NicStatus {
  return status?.nics?.find((nic) => nic.name === name) ?? assert.fail(`no NIC ${name}`);
}
