/**
 * A node of a model of address management: a kernel in memory, a runtime that calls the CNI service, and a `coild` that can be killed
 * between any two of its calls. The parts of `coild` are the product's own; only its loops are the model's steps.
 *
 * Owns: pods' namespaces, what the runtime knows of them. Does not know: which steps come, and who may hold which address.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import type { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import { CniFailure, CniService } from "#features/cni";
import { IpamError, KubeBlockSource, NodeIpam } from "#features/ipam";
import { PodNetwork } from "#features/pod-network";
import { exportRoutes, RouteSync } from "#features/routes";
import { FakeKernel } from "#kernel/fake";
import type { NetStack } from "#kernel/net";
import type { KubeApi, Namespace } from "#kube/client";
import { POOL_ANNOTATION } from "#kube/coil";
import type { StoreReader } from "#kube/informer";
import { cniDeps } from "#programs/daemons/coild/cni-deps";
import { inspectThisNode, type NodeInspection } from "#programs/daemons/coild/inspect";
import { keepKernelOnce, rememberKernel } from "#programs/daemons/coild/keep-kernel";
import { PodNotes } from "#programs/daemons/coild/pod-notes";
import { ApiPath, Killed, Life, mortalApi, mortalKernel, type OnWritten } from "#test/ipam-mortal";
import { CNI_SERVICE, decodeAddResponse, EMPTY_CNI_ARGS, encodeCniArgs, encodeGcArgs } from "#wire/cnirpc";

const log = nullLogger;
const NETNS_DIR = "/run/netns";
const NETWORK = "k8s-pod-network";
const CONFIG = new TextEncoder().encode(JSON.stringify({ cniVersion: "1.1.0", name: NETWORK, type: "coil" }));
const POD_TABLE = 116;
const EXPORTED = { table: 119, protocol: 30 };
const NETWORK_OPTIONS = {
  tableId: POD_TABLE,
  rulePriority: 2000,
  protocolId: 30,
  compatCalico: false,
  hostLinkLocal: false,
  mtuBytes: undefined,
};
/** The time after which an impatient runtime cancels a call, in milliseconds. */
const IMPATIENCE_MS = 100;

/** A pod's sandbox in the runtime's records. */
export interface Sandbox {
  readonly containerId: string;
  readonly pod: string;
  /** Empty before its ADD has succeeded. */
  addresses: readonly string[];
  /**
   * True if, since it got its address, its node and all pods of that node were absent from the API for the grace, or its block was removed
   * by force.
   */
  mayBeTwice: boolean;
}

/** The kernel's objects of a pod, independent of `coild`. */
export interface Held {
  readonly sandbox: Sandbox;
  readonly addresses: readonly string[];
  /** Its link is down, so it is in no network. */
  readonly isCut: boolean;
}

/** One process. */
interface Coild {
  readonly life: Life;
  readonly network: PodNetwork;
  readonly ipam: NodeIpam;
  readonly service: CniService;
  readonly routes: RouteSync;
  readonly host: NetStack;
  /** True if this node's blocks are known, so that ADD is served. */
  isReady: boolean;
}

export interface MachineDeps {
  readonly api: KubeApi;
  readonly clock: FakeClock;
  readonly pool: string;
  readonly signal: AbortSignal;
  /** Called after each write of this machine. */
  readonly onWritten: OnWritten;
  readonly createPod: (name: string, node: string) => Promise<void>;
  readonly removePod: (name: string) => Promise<void>;
  /** The last report of the watch of this Node. */
  readonly nodeExists: (node: string) => boolean;
}

/** The result of a call of the runtime. */
export type Called = { readonly ok: true; readonly answer: Uint8Array } | { readonly ok: false; readonly why: string };

/** A machine; its kernel and its runtime outlive `coild`, and its runtime's records outlive a reboot. */
export class Machine {
  readonly node: string;
  readonly path = new ApiPath();
  /** The sandboxes by the number of the pod. */
  readonly sandboxes = new Map<number, Sandbox>();
  /** Sandboxes whose DEL has failed: the runtime calls it again. */
  readonly leaving = new Set<Sandbox>();
  /** Sandboxes that the runtime does not know any more, whose namespaces still exist: GC removes their attachments. */
  readonly forgotten = new Set<Sandbox>();
  /** Containers whose links were deleted without a DEL: their addresses stay taken for a grace. */
  readonly vanished = new Set<string>();
  /** The time since which its Node object and all pods bound to it are absent, in milliseconds. */
  forsakenSinceMs: number | undefined;
  /** True if the API has changes that its `coild` has not read. */
  isBehind = true;
  /** True if its `coild` knows that its Node does not exist. */
  isNodeGone = false;
  readonly #deps: MachineDeps;
  readonly #ipv4: IpAddress;
  #kernel = new FakeKernel();
  #coild: Coild | undefined;
  #serial = 0;

  constructor(node: string, ordinal: number, deps: MachineDeps) {
    this.node = node;
    this.#ipv4 = IpAddress.parse(`192.0.2.${ordinal + 1}`);
    this.#deps = deps;
  }

  /** `coild` is running. */
  get isUp(): boolean {
    return this.#coild !== undefined && !this.#coild.life.isOver;
  }

  /** `coild` runs, and knows this node's blocks. */
  get isReady(): boolean {
    return this.isUp && this.#coild?.isReady === true;
  }

  get isAway(): boolean {
    return this.path.isCut;
  }

  get blocks(): NodeIpam["blocks"] {
    return this.#coild?.ipam.blocks ?? [];
  }

  /** The reports of `coild` about itself. */
  inspect(): NodeInspection {
    const { ipam, network, routes } = this.#running();
    return inspectThisNode({ nodeName: this.node, ipam, network, exported: routes.list().map(({ dst }) => dst) });
  }

  /** Starts `coild`. `diesAfter`: it is killed after this number of calls, and must then be started again. */
  async start(diesAfter?: number): Promise<void> {
    const life = new Life();
    if (diesAfter !== undefined) life.dieAfter(diesAfter);
    this.isNodeGone = false;
    try {
      this.#coild = this.#boot(life);
      assert.deepEqual(this.#coild.network.halfMade(), [], "links of ADDs that never ended, after a start");
      await life.unlessKilled(this.#goOn(this.#coild));
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
    }
  }

  kill(): void {
    this.#coild?.life.kill();
  }

  /** `coild` is killed at the call after this number of calls. */
  dieAfter(calls: number): void {
    this.#coild?.life.dieAfter(calls);
  }

  /** Cancels a death and faults that have not happened yet. */
  calm(): void {
    this.#coild?.life.goOn();
    this.path.heal();
    this.#kernel.heal();
  }

  /** The next operation of the kernel of this name fails. */
  failKernel(operation: string): void {
    this.#kernel.fail(operation, "failed");
  }

  /** The machine loses its power: only the runtime's records on the disk stay. */
  async reboot(): Promise<void> {
    this.kill();
    this.#kernel = new FakeKernel();
    await this.start();
    for (const set of [this.leaving, this.forgotten]) set.clear();
    for (const [id, sandbox] of this.sandboxes) {
      this.sandboxes.delete(id);
      const done = await this.#call("Del", sandbox);
      assert.ok(done.ok || !this.isUp, `DEL of a pod from before the reboot: ${done.ok ? "" : done.why}`);
      await this.#deps.removePod(sandbox.pod);
    }
  }

  /**
   * ADD of a new sandbox for the pod of this number. `coild` reads the Pod first, and the kubelet does too. `isImpatient`: the call is soon
   * cancelled.
   */
  async add(id: number, { isImpatient = false } = {}): Promise<Called> {
    assert.ok(!this.sandboxes.has(id) && !this.isAway);
    this.#serial += 1;
    const containerId = `${this.node}-${id}-${this.#serial}`;
    const sandbox: Sandbox = { containerId, pod: containerId, addresses: [], mayBeTwice: false };
    await this.#deps.createPod(sandbox.pod, this.node);
    this.#kernel.createNetNs(containerId)[Symbol.dispose]();
    this.sandboxes.set(id, sandbox);
    const called = await this.#call("Add", sandbox, isImpatient ? AbortSignal.timeout(IMPATIENCE_MS) : undefined);
    if (called.ok) sandbox.addresses = addressesOf(called.answer);
    else await this.del(id);
    return called;
  }

  /** A second ADD for the same sandbox. */
  async addAgain(sandbox: Sandbox): Promise<Called> {
    const called = await this.#call("Add", sandbox);
    if (called.ok)
      assert.deepEqual(addressesOf(called.answer), sandbox.addresses, "a repeated ADD gave other addresses");
    return called;
  }

  /** DEL, and then the removal of the namespace. A failed DEL is repeated by {@link Machine.delLeaving}. */
  async del(id: number): Promise<Called> {
    const sandbox = this.sandboxes.get(id);
    assert.ok(sandbox !== undefined);
    this.sandboxes.delete(id);
    this.leaving.add(sandbox);
    return this.#finish(sandbox);
  }

  async delLeaving(): Promise<void> {
    for (const sandbox of this.leaving) await this.#finish(sandbox);
  }

  check(sandbox: Sandbox): Promise<Called> {
    return this.#call("Check", sandbox);
  }

  /** GC with the attachments that the runtime knows; then the namespaces of forgotten sandboxes are removed. */
  async gc(): Promise<Called> {
    const known = [...this.sandboxes.values(), ...this.leaving];
    const attachments = known.map(({ containerId }) => ({ containerId, ifname: "eth0" }));
    const called = await this.#handle("GC", encodeGcArgs({ network: NETWORK, attachments }));
    if (!called.ok) return called;
    for (const sandbox of this.forgotten) {
      assert.deepEqual(this.#read(sandbox), undefined, `GC left ${sandbox.containerId}`);
      this.#removeNamespace(sandbox);
    }
    this.forgotten.clear();
    return called;
  }

  /** The runtime loses its record of a sandbox, and the Pod is deleted; the namespace stays. */
  async forget(id: number): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return;
    this.sandboxes.delete(id);
    this.forgotten.add(sandbox);
    await this.#deps.removePod(sandbox.pod);
  }

  /** A pod's namespace is removed before its DEL. */
  async loseNamespace(id: number): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return;
    this.#removeNamespace(sandbox);
    await this.del(id);
  }

  /** A pod's namespace is removed, and the runtime loses its record, so that no DEL comes. */
  async loseSandbox(id: number): Promise<void> {
    const sandbox = this.sandboxes.get(id);
    if (sandbox === undefined) return;
    this.sandboxes.delete(id);
    this.vanished.add(sandbox.containerId);
    this.#removeNamespace(sandbox);
    await this.#deps.removePod(sandbox.pod);
  }

  /** Returns true if the node has a link of a pod, finished or not. */
  hasLink({ containerId }: Pick<Sandbox, "containerId">): boolean {
    using own = this.#kernel.openNetNs("own");
    using host = this.#kernel.openStack(own);
    return host.links.list().some(({ alias = "" }) => alias.endsWith(`:${containerId}:eth0`));
  }

  /** Another program deletes the host's end of a pod. */
  removeLink(id: number): void {
    const alias = `:${this.sandboxes.get(id)?.containerId ?? "none"}:eth0`;
    using own = this.#kernel.openNetNs("own");
    using host = this.#kernel.openStack(own);
    const link = host.links.list().find((one) => one.alias?.endsWith(alias) === true);
    if (link !== undefined) host.links.delete(link.index);
  }

  /** The steps that a running `coild` makes by itself: a comparison if the API has changed, surveys, repairs, routes. */
  async goOn(): Promise<void> {
    const coild = this.#coild;
    if (coild === undefined || coild.life.isOver) return;
    try {
      await coild.life.unlessKilled(this.#goOn(coild));
    } catch (error) {
      if (!(error instanceof Killed)) throw error;
    }
  }

  /** The kernel's objects of the runtime's sandboxes, and of sandboxes that it has lost. */
  held(): Held[] {
    const all = [...this.sandboxes.values(), ...this.leaving, ...this.forgotten];
    return all.flatMap((sandbox) => this.#read(sandbox) ?? []);
  }

  /** The kernel's objects that a machine without pods does not have. */
  leftovers(): string[] {
    using own = this.#kernel.openNetNs("own");
    using host = this.#kernel.openStack(own);
    const links = host.links.list().flatMap(({ name, alias }) => (name === "lo" ? [] : `link ${name} ${alias ?? ""}`));
    const routes = ([4, 6] as const).flatMap((family) =>
      [POD_TABLE, EXPORTED.table].flatMap((table) =>
        host.routes.list({ family, table }).map(({ dst }) => `route ${dst} of table ${table}`),
      ),
    );
    return [...links, ...routes, ...this.#kernel.listNetNs().map((name) => `namespace ${name}`)];
  }

  #boot(life: Life): Coild {
    const { clock, pool, onWritten } = this.#deps;
    const kernel = mortalKernel(this.#kernel, life);
    const api = mortalApi(this.#deps.api, { path: this.path, life, onWritten });
    const network = new PodNetwork({ kernel, log }, NETWORK_OPTIONS);
    const own = kernel.openNetNs("own");
    const host = kernel.openStack(own);
    network.initHost();
    network.removeHalfMade();
    network.setNodeAddresses({ ipv4: this.#ipv4, ipv6: undefined });
    const source = new KubeBlockSource({ api, log }, { nodeName: this.node });
    const ipam = new NodeIpam(
      { source, log, clock, onBlocksChanged: () => undefined },
      { collectIntervalMs: 300_000, releaseDelayMs: 0, freedSoonMs: 0 },
    );
    rememberKernel({ network, ipam }, { registerFromMain: false });
    const namespace = {
      metadata: { name: "default", annotations: { [POOL_ANNOTATION]: pool } },
    } as unknown as Namespace;
    const namespaces: Pick<StoreReader<Namespace>, "get"> = { get: () => namespace };
    const service = new CniService(
      cniDeps({
        nodeName: this.node,
        api,
        ipam,
        network,
        namespaces: namespaces as StoreReader<Namespace>,
        clients: undefined,
        // The runtime of the model calls ADD only if this is true.
        ready: Promise.resolve(),
        ownNode: { untilOurs: async () => undefined },
        isReady: () => this.isReady,
        setUpFault: () => undefined,
        oneSandboxPerPod: false,
        extraSources: undefined,
        notes: new PodNotes(),
        log,
        clock,
      }),
    );
    return { life, network, ipam, service, host, routes: new RouteSync(host, EXPORTED), isReady: false };
  }

  async #goOn(coild: Coild): Promise<void> {
    const { ipam, routes } = coild;
    if (!this.isAway) {
      this.isNodeGone = !this.#deps.nodeExists(this.node);
      ipam.noteNode(!this.isNodeGone);
    }
    const hasEmpty = ipam.snapshot().blocks.some(({ used, reserved }) => used === 0 && !reserved);
    if (!this.isAway && (this.isBehind || hasEmpty || !coild.isReady)) {
      this.#keep(coild);
      this.isBehind = false;
      try {
        await ipam.collect({ signal: this.#deps.signal });
        coild.isReady = true;
      } catch (error) {
        this.isBehind = true;
        if (!(error instanceof IpamError)) throw error;
      }
    }
    this.#keep(coild);
    this.#forgive(() => routes.sync(exportRoutes(ipam.prefixes, 1, EXPORTED)));
  }

  #keep({ network, ipam }: Coild): void {
    const ignored = { onSurveyed: () => undefined, onRemade: () => undefined, lost: { report: () => undefined } };
    this.#forgive(() => keepKernelOnce({ network, ipam, ...ignored }, { registerFromMain: false }));
  }

  /** A failure of the kernel: the next pass tries again. */
  #forgive(work: () => unknown): void {
    try {
      work();
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
    }
  }

  #running(): Coild {
    assert.ok(this.#coild !== undefined && this.isUp, `${this.node}: coild is not running`);
    return this.#coild;
  }

  async #finish(sandbox: Sandbox): Promise<Called> {
    const called = await this.#call("Del", sandbox);
    if (!called.ok) return called;
    this.leaving.delete(sandbox);
    assert.equal(this.#read(sandbox), undefined, `DEL left ${sandbox.containerId}`);
    this.#removeNamespace(sandbox);
    await this.#deps.removePod(sandbox.pod);
    return called;
  }

  #removeNamespace({ containerId }: Sandbox): void {
    if (this.#kernel.listNetNs().includes(containerId)) this.#kernel.deleteNetNs(containerId);
  }

  #call(method: "Add" | "Del" | "Check", { containerId, pod }: Sandbox, signal?: AbortSignal): Promise<Called> {
    const args = { K8S_POD_NAMESPACE: "default", K8S_POD_NAME: pod };
    const netns = join(NETNS_DIR, containerId);
    const message = { ...EMPTY_CNI_ARGS, containerId, netns, ifname: "eth0", args, stdinData: CONFIG };
    if (method === "Add" && !this.isReady) return Promise.resolve({ ok: false, why: "coild is not ready" });
    return this.#handle(method, encodeCniArgs(message), signal);
  }

  async #handle(method: string, request: Uint8Array, signal = this.#deps.signal): Promise<Called> {
    const coild = this.#coild;
    const handler = coild?.service.handlers[`/${CNI_SERVICE}/${method}`];
    if (coild === undefined || handler === undefined || coild.life.isOver) return { ok: false, why: "coild is away" };
    try {
      const answer = await coild.life.unlessKilled(handler(request, { signal }));
      return { ok: true, answer };
    } catch (error) {
      if (error instanceof Killed) return { ok: false, why: "coild was killed" };
      if (error instanceof CniFailure) return { ok: false, why: error.message };
      throw error;
    }
  }

  /** The kernel's objects of a sandbox: read in the pod's namespace, and from the link that leads to it. */
  #read(sandbox: Sandbox): Held | undefined {
    if (!this.#kernel.listNetNs().includes(sandbox.containerId)) return undefined;
    using own = this.#kernel.openNetNs("own");
    using host = this.#kernel.openStack(own);
    using netns = this.#kernel.openNetNs({ name: sandbox.containerId });
    using pod = this.#kernel.openStack(netns);
    const link = pod.links.get({ name: "eth0" });
    if (link === undefined) return undefined;
    const addresses = pod.addresses.list({ linkIndex: link.index }).filter(({ scope }) => scope === "global");
    const hostLink = link.peerIndex === undefined ? undefined : host.links.get({ index: link.peerIndex });
    return {
      sandbox,
      addresses: addresses.map(({ address }) => String(address)),
      isCut: hostLink?.up !== true,
    };
  }
}

/** The addresses of an answer to ADD, without their prefix lengths. */
function addressesOf(answer: Uint8Array): string[] {
  const result = JSON.parse(new TextDecoder().decode(decodeAddResponse(answer))) as {
    readonly ips: readonly { readonly address: string }[];
  };
  return result.ips.map(({ address }) => address.split("/")[0] ?? "");
}
