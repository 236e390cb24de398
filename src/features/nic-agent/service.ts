import { type AbortOptions, KeyedMutex } from "#base/async";
import type { Clock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { Logger } from "#base/log";
import type { NicClaim, NicStatus } from "#kube/nic";
import { type CniResult, convertResult, HIGHEST_VERSION } from "#wire/cni";
import { CNI_SERVICE, decodeGcArgs, encodeAddResponse } from "#wire/cnirpc";
import type { ClaimBook } from "./claim-book.ts";
import { NicCallError, type NicCallErrorCode } from "./failure.ts";
import { active, type GateState, type NodePlace, orderedNics, plumbable } from "./gates.ts";
import { canonical, type OperatorSettings, refusedKeys } from "./operator-settings.ts";
import { type PluggedNic, PRIMARY, planChanges } from "./plan-changes.ts";
import { decoded, type NicCall, parseNicCall } from "./request.ts";
import { hasVpcData } from "./vpc-data.ts";

/** The part of a plan that the service knows. */
export interface SandboxPlanLike {
  readonly containerId: string;
  readonly podUid: string;
  /** The network's name, for GC. */
  readonly network: string;
  /** The CNI_IFNAME of its ADD; absent in plans of older agents. */
  readonly ifname?: string | undefined;
  /** In the order of the pod, those that were added later at the end. */
  readonly nics: readonly PluggedNic[];
}

/** The NICs of a pod that its node has. */
export interface PluggedState<Nic extends PluggedNic> {
  readonly isPlugged: boolean;
  /** `undefined` while an ADD of the pod is at work, or one of its NICs is plugged: nobody knows what there will be. */
  readonly nics: readonly Nic[] | undefined;
}

/** Something that has happened to a NIC of a pod that runs, for an event of the pod. */
export interface NicNews {
  readonly type: "Normal" | "Warning";
  readonly reason: "NicPlugged" | "NicUnplugged" | "NicFailed";
  readonly note: string;
}

/** What a plan is made of. */
export interface PlanRequest {
  readonly claim: NicClaim;
  /** In the order of the pod. */
  readonly nics: readonly NicStatus[];
  readonly call: NicCall;
  /** The name of the NIC `eth0` in the sandbox, if the call gives it another one. */
  readonly primaryName: string | undefined;
  /** True: another network has made `eth0` of the sandbox, as with Multus. */
  readonly isSecondary: boolean;
}

/** The NICs of a hand-over to a runtime of virtual machines. */
export interface HandedNics {
  readonly nics: readonly { readonly name?: string; readonly portID?: string }[];
}

/** One kind of network, by the `type` of its configuration. */
export interface NetworkKind {
  readonly type: string;
  /** Whether ADD ends only when the provider has told that the ports are active. */
  readonly awaitsActive: boolean;
  /** Whether what a container without a plan may have is found by a switch. */
  readonly hasSwitch: boolean;
}

/** What the service works with; `Plan` is the plan of a sandbox. */
export interface NicServiceDeps<Plan extends SandboxPlanLike> {
  readonly claims: ClaimBook;
  /** Reads a claim live; `undefined` if there is none. Rejects with an expected error. */
  /** Reads a pod live; `undefined`: there is none of that name. */
  readonly readPod: (
    namespace: string,
    name: string,
    options: AbortOptions,
  ) => Promise<{ readonly uid: string; readonly annotations: Readonly<Record<string, string>> } | undefined>;
  readonly readClaim: (namespace: string, uid: string, options: AbortOptions) => Promise<NicClaim | undefined>;
  /** The hand-over in CNI_ARGS; `undefined` without one. Throws an expected error for a faulty one. */
  readonly handOver: (args: string) => HandedNics | undefined;
  /** Such as `eth0=Failed(IpInUse)`. */
  readonly describe: (nics: readonly NicStatus[]) => string;
  /** The kinds of networks whose calls are served. */
  readonly networks: readonly NetworkKind[];
  /** Throws an expected error for a status that no NIC can be made of. */
  readonly plan: (request: PlanRequest) => Plan;
  readonly resultOf: (plan: Plan) => CniResult;
  /**
   * The plan of a NIC that is added to a sandbox; a text says why it cannot be. Throws an expected error for a status that no NIC can be made of.
   */
  readonly planAdded: (plan: Plan, claim: NicClaim, nic: NicStatus) => Plan["nics"][number] | string;
  readonly network: {
    setUp(plan: Plan, options: { readonly signal: AbortSignal }): Promise<Plan>;
    tearDown(
      containerId: string,
      options: {
        readonly signal: AbortSignal;
        readonly ifname?: string | undefined;
        readonly known: Plan | undefined;
        readonly scan: { readonly ovsdb: string; readonly bridge: string } | undefined;
      },
    ): Promise<{ readonly found: boolean; readonly podUid: string | undefined; readonly lost: readonly string[] }>;
    check(
      containerId: string,
      netns: string,
      options: { readonly signal: AbortSignal; readonly ifname?: string | undefined },
    ): Promise<readonly string[] | undefined>;
    plug(
      containerId: string,
      nic: Plan["nics"][number],
      options: { readonly signal: AbortSignal },
    ): Promise<Plan["nics"][number] | undefined>;
    unplug(containerId: string, portId: string, options: { readonly signal: AbortSignal }): Promise<boolean>;
    announce(plan: Plan): void;
    plans(): readonly Plan[];
  };
  /** What the operator of the node has set: a configuration of a network may have no other values. */
  readonly operator: OperatorSettings;
  /** The kind of a failure of the network; `undefined`: `internal`. */
  readonly kindOf: (error: unknown) => NicCallErrorCode | undefined;
  /** Called when NICs of a pod were plugged or unplugged, with the names of lost ones. */
  readonly onPlugged: (podUid: string, lost: readonly string[]) => void;
  /** Called for what becomes of NICs of a pod that runs. */
  readonly onNews: (claim: NicClaim, news: NicNews) => void;
  /** Called for a pod whose NICs cannot be had before it is replaced. */
  readonly onFailed: (claim: NicClaim, why: string) => void;
  /** Called with the time of a step of ADD, in seconds. */
  readonly onStep: (step: "plumbable" | "plug" | "active", seconds: number) => void;
  /** Does work on a claim, unless that is set aside: then it resolves to `undefined` without it. Default: always. */
  readonly passOf?: <T>(claim: NicClaim, work: () => Promise<T>, signal: AbortSignal) => Promise<T | undefined>;
  readonly place: NodePlace;
  readonly clock: Clock;
  readonly log: Logger;
}

/** The uid that runtimes are told of a static pod, as the mirror of the pod has it (kubelet's types.ConfigHashAnnotationKey). */
const STATIC_POD_UID = "kubernetes.io/config.hash";

type Handler = (request: Uint8Array, options: { readonly signal: AbortSignal }) => Promise<Uint8Array>;

/** ADD, DEL, CHECK, STATUS and GC of the executables vpc-neutron and vpc-alcor. Calls of one pod or container run one after the other. */
export class NicService<Plan extends SandboxPlanLike> {
  readonly #deps: NicServiceDeps<Plan>;
  readonly #containers = new KeyedMutex();
  readonly #pods = new KeyedMutex();
  /** Containers whose ADD is not done, with their pods. */
  readonly #making = new Map<string, string>();
  /** Failures of NICs that were to be added or removed, by container and NIC, so that each is told once; as many as such NICs. */
  readonly #told = new Map<string, string>();

  constructor(deps: NicServiceDeps<Plan>) {
    this.#deps = deps;
  }

  /** The gRPC methods by path. */
  get handlers(): Readonly<Record<string, Handler>> {
    const method = (name: string, work: (call: NicCall, signal: AbortSignal) => Promise<Uint8Array>): Handler => {
      const types = this.#deps.networks.map(({ type }) => type);
      return (request, { signal }) => this.#logged(name, parseNicCall(request, types), signal, work);
    };
    return {
      [`/${CNI_SERVICE}/Add`]: method("Add", (call, signal) => this.#add(call, signal)),
      [`/${CNI_SERVICE}/Del`]: method("Del", (call, signal) => this.#del(call, signal)),
      [`/${CNI_SERVICE}/Check`]: method("Check", (call, signal) => this.#check(call, signal)),
      [`/${CNI_SERVICE}/Status`]: async () => new Uint8Array(0),
      [`/${CNI_SERVICE}/GC`]: (request, { signal }) => this.#gc(request, signal),
    };
  }

  /** The NICs of a pod that this node has. */
  stateOf(podUid: string): PluggedState<Plan["nics"][number]> {
    const plans = this.#deps.network.plans().filter((plan) => plan.podUid === podUid);
    const isMaking = [...this.#making.values()].includes(podUid);
    const nics = plans.flatMap((plan) => plan.nics);
    return {
      isPlugged: plans.some(({ containerId }) => !this.#making.has(containerId)),
      nics: isMaking || nics.some(({ pending }) => pending === true) ? undefined : nics,
    };
  }

  /**
   * Adds NICs to sandboxes that run, and removes some, as their claims say (docs/spec/vpc-nics.md#10). Returns the number of changes. Those that fail do
   * not hold up others; rejects with {@link NicCallError} for the first one afterwards.
   */
  async follow({ signal }: { readonly signal: AbortSignal }): Promise<number> {
    const { network } = this.#deps;
    const { passOf = (_claim, work) => work() } = this.#deps;
    const follow = (id: string, claim: NicClaim) =>
      passOf(claim, () => this.#containers.run(id, () => this.#followIn(id, signal), { signal }), signal);
    const ends = await Promise.allSettled(
      network.plans().flatMap(({ containerId }) => {
        const changed = this.#changesOf(containerId);
        return changed === undefined ? [] : [follow(containerId, changed.claim)];
      }),
    );
    const known = new Set(network.plans().map(({ containerId }) => containerId));
    for (const key of this.#told.keys()) if (!known.has(key.split("/")[0] ?? "")) this.#told.delete(key);
    let changes = 0;
    let first: unknown;
    for (const end of ends) {
      if (end.status === "fulfilled") {
        changes += end.value?.changes ?? 0;
        first ??= end.value?.failure;
      } else if (!signal.aborted) throw end.reason;
    }
    if (first !== undefined) throw this.#failureOf(first, signal);
    return changes;
  }

  #changesOf(containerId: string) {
    const { network, claims, place } = this.#deps;
    const plan = network.plans().find((one) => one.containerId === containerId);
    const claim = plan === undefined ? undefined : claims.get(plan.podUid);
    if (plan === undefined || claim === undefined || this.#making.has(containerId)) return undefined;
    const changes = planChanges(claim, plan, place);
    return changes.plug.length + changes.unplug.length === 0 ? undefined : { plan, claim, ...changes };
  }

  /** The changes of one sandbox; calls for it wait meanwhile. */
  async #followIn(
    containerId: string,
    signal: AbortSignal,
  ): Promise<{ readonly changes: number; readonly failure: unknown }> {
    const { network, onPlugged, onNews, log } = this.#deps;
    let changes = 0;
    let failure: unknown;
    const attempt = async (claim: NicClaim, name: string, work: () => Promise<string | undefined>): Promise<void> => {
      const key = `${containerId}/${name}`;
      try {
        const done = await work();
        this.#told.delete(key);
        if (done === undefined) return;
        changes += 1;
        log.info(done, { containerID: containerId, pod: claim.metadata.name, nic: name });
        onPlugged(claim.metadata.name, []);
      } catch (error) {
        if (signal.aborted || !(error instanceof ExpectedError || error instanceof AggregateError)) throw error;
        failure ??= error;
        const note = `${name}: ${describeError(error)}`;
        if (this.#told.get(key) === note) return;
        this.#told.set(key, note);
        onNews(claim, { type: "Warning", reason: "NicFailed", note });
        log.warn("a NIC of a running pod could not be changed", { containerID: containerId, nic: name, error: note });
      }
    };
    const removing = this.#changesOf(containerId);
    if (removing === undefined) return { changes, failure };
    const { claim } = removing;
    for (const { name, portId } of removing.unplug) {
      await attempt(claim, name, async () => {
        const isLost = await network.unplug(containerId, portId, { signal });
        const note = `${name}: port ${portId}${isLost ? ", whose device was lost" : ""}`;
        onNews(claim, { type: "Normal", reason: "NicUnplugged", note });
        return "NIC removed from a sandbox that runs";
      });
    }
    // A NIC that could not be removed may have the name of one that is to be added.
    for (const nic of this.#changesOf(containerId)?.plug ?? []) {
      await attempt(claim, nic.name, async () => {
        const plan = network.plans().find((one) => one.containerId === containerId);
        if (plan === undefined) return undefined;
        const wanted = this.#deps.planAdded(plan, claim, nic);
        if (typeof wanted === "string") throw new NicCallError("nic-failed", wanted);
        let made: Plan["nics"][number] | undefined;
        try {
          made = await network.plug(containerId, wanted, { signal });
        } catch (error) {
          // What the node has was not known meanwhile.
          onPlugged(claim.metadata.name, []);
          throw error;
        }
        if (made === undefined) return undefined;
        this.#announce({ ...plan, nics: [made] });
        onNews(claim, { type: "Normal", reason: "NicPlugged", note: `${nic.name}: port ${nic.portID}` });
        return "NIC added to a sandbox that runs";
      });
    }
    return { changes, failure };
  }

  async #logged(
    name: string,
    call: NicCall,
    signal: AbortSignal,
    work: (call: NicCall, signal: AbortSignal) => Promise<Uint8Array>,
  ): Promise<Uint8Array> {
    const { clock, log } = this.#deps;
    const startMs = clock.monotonic();
    const { containerId, netns, ifname, namespace, podName: pod } = call;
    const fields = { method: name, namespace, pod, netns, ifname, containerID: containerId };
    const seconds = (): number => Number(((clock.monotonic() - startMs) / 1000).toFixed(4));
    try {
      const reply = await this.#containers.run(containerId, () => work(call, signal), { signal });
      log.info("finished call", { ...fields, code: "OK", seconds: seconds() });
      return reply;
    } catch (error) {
      const failure = this.#failureOf(error, signal);
      const code = failure instanceof NicCallError ? failure.code : "bug";
      // The executable asks first, and hands such a pod to the plugin of its configuration.
      if (code === "no-vpc") log.debug("call for a pod without a VPC", { ...fields, code, seconds: seconds() });
      else log.warn("failed call", { ...fields, code, error: describeError(failure), seconds: seconds() });
      throw failure;
    }
  }

  async #add(call: NicCall, signal: AbortSignal): Promise<Uint8Array> {
    if (call.netns === "") throw new NicCallError("invalid-arguments", "ADD needs CNI_NETNS");
    this.#requireAllowed(call);
    const handed = this.#handOver(call);
    const uid = await this.#podOf(call, handed, signal);
    return await this.#pods.run(uid, () => this.#addTo(uid, call, handed, signal), { signal });
  }

  async #addTo(uid: string, call: NicCall, handed: HandedNics | undefined, signal: AbortSignal): Promise<Uint8Array> {
    const { network, claims, place } = this.#deps;
    const { config } = call;
    const open = await this.#timed("plumbable", () =>
      this.#gate(uid, (claim) => (isOf(call, claim) ? plumbable(claim, place) : { state: "waiting", nics: [] }), {
        atMostMs: config.plumbTimeoutMs,
        signal,
      }),
    );
    if (open.state !== "open") throw this.#waiting(open.nics);
    const claim = claims.get(uid);
    if (claim === undefined || !isOf(call, claim)) throw this.#waiting([]);
    // It may have changed since the gate opened, and the report may say already that nothing of it is plugged.
    if (claim.metadata.deletionTimestamp !== undefined) throw this.#waiting(open.nics);
    requireHanded(handed, open.nics);
    const wanted = this.#deps.plan({ claim, nics: open.nics, call, ...naming(call, handed, claim) });
    this.#making.set(call.containerId, uid);
    try {
      const plan = await this.#timed("plug", () => network.setUp(wanted, { signal }));
      this.#making.delete(call.containerId);
      this.#deps.onPlugged(uid, []);
      const names = new Set(open.nics.map(({ name }) => name));
      if (this.#networkOf(call)?.awaitsActive === true) await this.#awaitActive(uid, names, call, signal);
      this.#announce(plan);
      return encodeAddResponse(
        new TextEncoder().encode(JSON.stringify(convertResult(this.#deps.resultOf(plan), HIGHEST_VERSION))),
      );
    } finally {
      this.#making.delete(call.containerId);
    }
  }

  /** Neighbours find the addresses without an announcement too, only later; so its failure is none of the ADD. */
  #announce(plan: Plan): void {
    try {
      this.#deps.network.announce(plan);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      this.#deps.log.warn("addresses of NICs could not be announced", {
        containerID: plan.containerId,
        error: describeError(error),
      });
    }
  }

  /** Waits until all ports are active; otherwise all NICs are removed again. */
  async #awaitActive(uid: string, names: ReadonlySet<string>, call: NicCall, signal: AbortSignal): Promise<void> {
    const { config, containerId } = call;
    try {
      const state = await this.#timed("active", () =>
        this.#gate(uid, (claim) => active(claim, names), { atMostMs: config.activeTimeoutMs, signal }),
      );
      if (state.state === "open" || !config.requireActive) return;
      throw this.#inactive(state.nics);
    } catch (error) {
      await this.#undo(containerId, uid);
      throw error;
    }
  }

  async #undo(containerId: string, uid: string): Promise<void> {
    try {
      await this.#deps.network.tearDown(containerId, {
        signal: AbortSignal.timeout(UNDO_MS),
        known: undefined,
        scan: undefined,
      });
    } catch (error) {
      if (!(error instanceof ExpectedError || error instanceof AggregateError)) throw error;
      this.#deps.log.warn("NICs of a failed ADD could not be removed; DEL removes them", {
        containerID: containerId,
        error: describeError(error),
      });
    }
    this.#deps.onPlugged(uid, []);
  }

  async #del(call: NicCall, signal: AbortSignal): Promise<Uint8Array> {
    const { network, claims } = this.#deps;
    // The switch is asked only for a pod that can have ports: a node without VPCs may have none.
    const mayHavePorts =
      this.#networkOf(call)?.hasSwitch === true && (call.annotations === undefined || this.#hasVpcData(call));
    const claim = call.podUid === undefined ? undefined : claims.get(call.podUid);
    const removal = await network.tearDown(call.containerId, {
      signal,
      ifname: ifnameOf(call),
      known: this.#knownPlan(call, claim),
      scan: mayHavePorts ? this.#switchOf(call) : undefined,
    });
    const uid = removal.podUid ?? claim?.metadata.name;
    if (uid !== undefined) this.#deps.onPlugged(uid, removal.lost);
    if (!removal.found && claim === undefined && !this.#hasVpcData(call))
      throw new NicCallError("no-vpc", "nothing of this container is known here, and its pod has no VPC");
    return new Uint8Array(0);
  }

  /** The plan that an ADD would have made of the claim, to find what is left without a journal. */
  #knownPlan(call: NicCall, claim: NicClaim | undefined): Plan | undefined {
    if (claim === undefined) return undefined;
    const nics = orderedNics(claim);
    if (nics.some(({ portID }) => portID === undefined)) return undefined;
    try {
      return this.#deps.plan({ claim, nics, call, primaryName: ifnameOf(call), isSecondary: false });
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      return undefined;
    }
  }

  async #check(call: NicCall, signal: AbortSignal): Promise<Uint8Array> {
    const differences = await this.#deps.network.check(call.containerId, call.netns, {
      signal,
      ifname: ifnameOf(call),
    });
    if (differences === undefined) {
      if (call.podUid === undefined || this.#deps.claims.get(call.podUid) === undefined)
        throw new NicCallError("no-vpc", "nothing of this container is known here");
      throw new NicCallError("differs", "the container has no NICs of its VPC");
    }
    if (differences.length > 0) throw new NicCallError("differs", differences.slice(0, 20).join("; "));
    return new Uint8Array(0);
  }

  /** Removes the NICs of containers of a network that the runtime does not list. Goes on after failures, and reports them. */
  async #gc(request: Uint8Array, signal: AbortSignal): Promise<Uint8Array> {
    const { network: name, attachments } = decoded(() => decodeGcArgs(request));
    if (name === "") throw new NicCallError("invalid-arguments", "GC needs the name of a network in the configuration");
    const { network, log, onPlugged } = this.#deps;
    const valid = new Set(attachments.flatMap(({ containerId, ifname }) => [containerId, `${containerId}/${ifname}`]));
    const failures: unknown[] = [];
    for (const { containerId, network: of, ifname } of network.plans()) {
      const attachment = ifname === undefined ? containerId : `${containerId}/${ifname}`;
      if (of !== name || valid.has(attachment) || this.#making.has(containerId)) continue;
      try {
        const removal = await this.#containers.run(
          containerId,
          () => network.tearDown(containerId, { signal, known: undefined, scan: undefined }),
          { signal },
        );
        if (removal.podUid !== undefined) onPlugged(removal.podUid, removal.lost);
        log.info("GC removed NICs that the runtime does not list", { network: name, containerID: containerId });
      } catch (error) {
        if (!(error instanceof ExpectedError || error instanceof AggregateError)) throw error;
        failures.push(error);
      }
    }
    if (failures.length === 0) return new Uint8Array(0);
    throw new NicCallError("internal", `GC: ${failures.map(describeError).slice(0, 5).join("; ")}`, {
      cause: new AggregateError(failures),
    });
  }

  /**
   * The uid of the pod of a call (docs/spec/vpc-nics.md#8.1). A pod of which nothing says that it has a VPC has none when it has no claim, which is read
   * live once. Throws `no-vpc`.
   */
  async #podOf(call: NicCall, handed: HandedNics | undefined, signal: AbortSignal): Promise<string> {
    const { claims, readClaim } = this.#deps;
    const { podUid, namespace } = call;
    if (podUid === undefined) {
      const ports = (handed?.nics ?? []).flatMap(({ portID }) => (portID === undefined ? [] : [portID]));
      const claim = claims.withPorts(ports);
      if (claim !== undefined) return claim.metadata.name;
      if (handed === undefined) throw new NicCallError("no-vpc", "CNI_ARGS has neither K8S_POD_UID nor NICs");
      throw new NicCallError("try-again", `no claim of this node has the ports ${ports.join(", ")} yet`);
    }
    if (claims.get(podUid) !== undefined || handed !== undefined || this.#hasVpcData(call)) return podUid;
    const isTold = call.annotations !== undefined || namespace === undefined;
    const live = isTold ? undefined : await readClaim(namespace, podUid, { signal });
    if (live !== undefined || (!isTold && (await this.#wishesVpc(call, { namespace, podUid }, signal)))) return podUid;
    throw new NicCallError(
      "no-vpc",
      "the pod has no VPC, and the configuration names no plugin for such pods (delegate)",
    );
  }

  /**
   * Whether the pod itself asks for a VPC, where the runtime does not tell: its claim may not be made yet, and a pod of a VPC must not get the
   * network of others. Throws `try-again` for a pod that was replaced.
   */
  async #wishesVpc(
    { podName }: NicCall,
    { namespace, podUid }: { readonly namespace: string; readonly podUid: string },
    signal: AbortSignal,
  ): Promise<boolean> {
    if (podName === undefined) return false;
    const pod = await this.#deps.readPod(namespace, podName, { signal });
    // The API server does not know static pods of a kubelet before their mirrors, which have no VPC.
    if (pod === undefined) return false;
    const { uid, annotations } = pod;
    if (uid !== podUid && annotations[STATIC_POD_UID] !== podUid)
      throw new NicCallError("try-again", `pod ${namespace}/${podName} has been replaced: it has the uid ${uid} now`);
    return hasVpcData(annotations);
  }

  #hasVpcData({ annotations = {} }: NicCall): boolean {
    return hasVpcData(annotations);
  }

  #handOver({ args }: NicCall): HandedNics | undefined {
    try {
      return this.#deps.handOver(
        Object.entries(args)
          .map(([key, value]) => `${key}=${value}`)
          .join(";"),
      );
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      throw new NicCallError("invalid-arguments", error.message, { cause: error });
    }
  }

  /** Throws `invalid-config` for a value that is neither the agent's own nor allowed. */
  #requireAllowed({ config }: NicCall): void {
    const faults = refusedKeys(config, this.#deps.operator).map((key) => {
      const value = String(config[key]).slice(0, 64);
      return `${key}: ${JSON.stringify(value)} is neither the agent's own value nor one of --allow-configuration (${key}=${value})`;
    });
    if (faults.length > 0) throw new NicCallError("invalid-config", `network configuration: ${faults.join("; ")}`);
  }

  #networkOf({ config }: NicCall): NetworkKind | undefined {
    return this.#deps.networks.find(({ type }) => type === config.type);
  }

  #switchOf({ config }: NicCall): { readonly ovsdb: string; readonly bridge: string } {
    const { operator } = this.#deps;
    // A DEL is never refused: what the configuration may not name is looked for where the operator has it.
    const refused = refusedKeys(config, operator);
    const settingOf = (key: "ovsdb" | "integrationBridge"): string => {
      const given = config[key];
      return given === undefined || refused.includes(key) ? operator.values[key] : canonical(key, given);
    };
    return { ovsdb: settingOf("ovsdb"), bridge: settingOf("integrationBridge") };
  }

  /** Waits at a gate. A claim that is not there yet waits too. Throws `nic-failed` at once for what no time heals. */
  async #gate(
    uid: string,
    look: (claim: NicClaim) => GateState,
    options: { readonly atMostMs: number; readonly signal: AbortSignal },
  ): Promise<GateState> {
    let last: GateState = { state: "waiting", nics: [] };
    const settled = await this.#deps.claims.wait(
      uid,
      (claim) => {
        last = claim === undefined ? { state: "waiting", nics: [] } : look(claim);
        return last.state === "waiting" ? undefined : last;
      },
      options,
    );
    const state = settled ?? last;
    if (state.state !== "failed") return state;
    const why = this.#deps.describe(state.nics);
    const claim = this.#deps.claims.get(uid);
    if (claim !== undefined) this.#deps.onFailed(claim, why);
    throw new NicCallError("nic-failed", `NICs of the pod failed: ${why}`);
  }

  #inactive(nics: readonly NicStatus[]): NicCallError {
    const text = `waiting for ports: ${this.#deps.describe(nics)}; the node has plugged them: is the provider's agent on ${this.#deps.place.nodeName} running?`;
    return new NicCallError("try-again", text);
  }

  #waiting(nics: readonly NicStatus[]): NicCallError {
    return new NicCallError(
      "try-again",
      `waiting for ports: ${nics.length === 0 ? "the pod has no claim on this node yet" : this.#deps.describe(nics)}`,
    );
  }

  async #timed<T>(step: "plumbable" | "plug" | "active", work: () => Promise<T>): Promise<T> {
    const startMs = this.#deps.clock.monotonic();
    const result = await work();
    this.#deps.onStep(step, (this.#deps.clock.monotonic() - startMs) / 1000);
    return result;
  }

  /** Any expected error without a kind is `internal`, an abort is `try-again`; anything else is a bug and stays as it is. */
  #failureOf(error: unknown, signal: AbortSignal): unknown {
    if (error instanceof NicCallError) return error;
    if (signal.aborted && error === signal.reason)
      return new NicCallError("try-again", `the call was cancelled: ${describeError(error)}`, { cause: error });
    if (!(error instanceof ExpectedError || error instanceof AggregateError)) return error;
    return new NicCallError(this.#deps.kindOf(error) ?? "internal", describeError(error), { cause: error });
  }
}

/** The time to remove NICs whose ports did not become active, in milliseconds (docs/spec/vpc-nics.md#8.5). */
const UNDO_MS = 5000;

/** A claim of another namespace is not that of the pod, even if it has its uid. */
function isOf({ namespace }: NicCall, { metadata }: NicClaim): boolean {
  return namespace === undefined || metadata.namespace === undefined || metadata.namespace === namespace;
}

/** A hand-over that names other ports than the claim is for another pod. */
function requireHanded(handed: HandedNics | undefined, nics: readonly NicStatus[]): void {
  for (const { portID } of handed?.nics ?? []) {
    if (portID !== undefined && !nics.some((nic) => nic.portID === portID))
      throw new NicCallError(
        "invalid-arguments",
        `CNI_ARGS has the port ${portID}, which is not one of the pod's claim`,
      );
  }
}

/** The CNI_IFNAME of a call; `undefined` for a caller that gives none. */
function ifnameOf({ ifname }: NicCall): string | undefined {
  return ifname === "" ? undefined : ifname;
}

/**
 * The name of the NIC `eth0` in the sandbox: that of CNI_IFNAME, unless a hand-over names its NICs itself (docs/spec/vpc-nics.md#8.4). A runtime that
 * wants another name than `eth0` has made that one by another network, except one of virtual machines, which hands NICs over. Throws `invalid-arguments`
 * for a name that another NIC of the pod has.
 */
function naming(
  call: NicCall,
  handed: HandedNics | undefined,
  { spec }: NicClaim,
): Pick<PlanRequest, "primaryName" | "isSecondary"> {
  const ifname = ifnameOf(call);
  if (ifname === undefined || ifname === PRIMARY) return { primaryName: undefined, isSecondary: false };
  const isSecondary = handed === undefined;
  if (handed?.nics[0]?.name !== undefined) return { primaryName: undefined, isSecondary };
  if (spec.nics.some(({ name }) => name === ifname))
    throw new NicCallError(
      "invalid-arguments",
      `CNI_IFNAME "${ifname}" is the name of another NIC of the pod: give the network another name in the pod (with Multus NETWORK@NAME in k8s.v1.cni.cncf.io/networks), or that NIC in nics`,
    );
  return { primaryName: ifname, isSecondary };
}
