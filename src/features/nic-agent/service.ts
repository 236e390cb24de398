import { KeyedMutex } from "#base/async";
import { describeError, ExpectedError } from "#base/errors";
import type { NicClaim } from "#kube/nic";
import type { CniResult } from "#wire/cni";
import type { CniCaller, ContainerMethod, GcArgs } from "#wire/cnirpc";
import { announce } from "./announce.ts";
import { CallPods, callHasVpcData, ifnameOf, isOf, naming, requireHanded } from "./call-pods.ts";
import { callFailure, NicCallError } from "./failure.ts";
import { SandboxFollower } from "./follow.ts";
import { GateWaits } from "./gate-waits.ts";
import { active, orderedNics, plumbable } from "./gates.ts";
import { canonical, refusedKeys } from "./operator-settings.ts";
import { type NicCall, nicHandlers, parseNicCall } from "./request.ts";
import type { HandedNics, NetworkKind, NicServiceDeps, PluggedState, SandboxPlanLike } from "./service-deps.ts";

/** The time to remove NICs whose ports did not become active, in milliseconds (docs/spec/vpc-nics.md#8.5). */
const UNDO_MS = 5000;

/** ADD, DEL, CHECK, STATUS and GC of the executables vpc-neutron and vpc-alcor. Calls of one pod or container run one after the other. */
export class NicService<Plan extends SandboxPlanLike> {
  readonly #deps: NicServiceDeps<Plan>;
  readonly #containers = new KeyedMutex();
  readonly #pods = new KeyedMutex();
  /** Containers whose ADD is not done, with their pods. */
  readonly #making = new Map<string, string>();
  readonly #waits: GateWaits;
  readonly #callPods: CallPods;
  readonly #follower: SandboxFollower<Plan>;

  constructor(deps: NicServiceDeps<Plan>) {
    this.#deps = deps;
    this.#waits = new GateWaits(deps);
    this.#callPods = new CallPods(deps);
    this.#follower = new SandboxFollower(deps, { containers: this.#containers, making: this.#making });
  }

  /** The gRPC methods by path. */
  get handlers(): ReturnType<typeof nicHandlers> {
    return nicHandlers(this.call);
  }

  /** Makes a call. Rejects with {@link NicCallError}. */
  readonly call: CniCaller = async (call, { signal }) => {
    if (call.method === "Status") return undefined;
    if (call.method === "GC") return await this.#gc(call.args, signal);
    const types = this.#deps.networks.map(({ type }) => type);
    const nicCall = parseNicCall(call.args, types);
    const work = {
      Add: () => this.#add(nicCall, signal),
      Del: () => this.#del(nicCall, signal),
      Check: () => this.#check(nicCall, signal),
    };
    return await this.#logged(call.method, nicCall, signal, work[call.method]);
  };

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
  follow(options: { readonly signal: AbortSignal }): Promise<number> {
    return this.#follower.follow(options);
  }

  async #logged<T>(name: ContainerMethod, call: NicCall, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const { clock, log } = this.#deps;
    const startMs = clock.monotonic();
    const { containerId, netns, ifname, namespace, podName: pod } = call;
    const fields = { method: name, namespace, pod, netns, ifname, containerID: containerId };
    const seconds = (): number => Number(((clock.monotonic() - startMs) / 1000).toFixed(4));
    try {
      const reply = await this.#containers.run(containerId, work, { signal });
      log.info("finished call", { ...fields, code: "OK", seconds: seconds() });
      return reply;
    } catch (error) {
      const failure = callFailure(error, { signal, kindOf: this.#deps.kindOf });
      const code = failure instanceof NicCallError ? failure.code : "bug";
      // The executable asks first, and hands such a pod to the plugin of its configuration.
      if (code === "no-vpc") log.debug("call for a pod without a VPC", { ...fields, code, seconds: seconds() });
      else log.warn("failed call", { ...fields, code, error: describeError(failure), seconds: seconds() });
      throw failure;
    }
  }

  async #add(call: NicCall, signal: AbortSignal): Promise<CniResult> {
    if (call.netns === "") throw new NicCallError("invalid-arguments", "ADD needs CNI_NETNS");
    this.#requireAllowed(call);
    const handed = this.#callPods.handOver(call);
    const uid = await this.#callPods.podOf(call, handed, signal);
    return await this.#pods.run(uid, () => this.#addTo(uid, call, handed, signal), { signal });
  }

  async #addTo(uid: string, call: NicCall, handed: HandedNics | undefined, signal: AbortSignal): Promise<CniResult> {
    const { network, claims, place } = this.#deps;
    const { config } = call;
    const open = await this.#timed("plumbable", () =>
      this.#waits.at(uid, (claim) => (isOf(call, claim) ? plumbable(claim, place) : { state: "waiting", nics: [] }), {
        atMostMs: config.plumbTimeoutMs,
        signal,
      }),
    );
    if (open.state !== "open") throw this.#waits.waiting(open.nics);
    const claim = claims.get(uid);
    if (claim === undefined || !isOf(call, claim)) throw this.#waits.waiting([]);
    // It may have changed since the gate opened, and the report may say already that nothing of it is plugged.
    if (claim.metadata.deletionTimestamp !== undefined) throw this.#waits.waiting(open.nics);
    requireHanded(handed, open.nics);
    const wanted = this.#deps.plan({ claim, nics: open.nics, call, ...naming(call, handed, claim) });
    this.#making.set(call.containerId, uid);
    try {
      const plan = await this.#timed("plug", () => network.setUp(wanted, { signal }));
      this.#making.delete(call.containerId);
      this.#deps.onPlugged(uid, []);
      const names = new Set(open.nics.map(({ name }) => name));
      if (this.#networkOf(call)?.awaitsActive === true) await this.#awaitActive(uid, names, call, signal);
      announce(this.#deps, plan);
      return this.#deps.resultOf(plan);
    } finally {
      this.#making.delete(call.containerId);
    }
  }

  /** Waits until all ports are active; otherwise all NICs are removed again. */
  async #awaitActive(uid: string, names: ReadonlySet<string>, call: NicCall, signal: AbortSignal): Promise<void> {
    const { config, containerId } = call;
    try {
      const state = await this.#timed("active", () =>
        this.#waits.at(uid, (claim) => active(claim, names), { atMostMs: config.activeTimeoutMs, signal }),
      );
      if (state.state === "open" || !config.requireActive) return;
      throw this.#waits.inactive(state.nics);
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

  async #del(call: NicCall, signal: AbortSignal): Promise<undefined> {
    const { network, claims } = this.#deps;
    // The switch is asked only for a pod that can have ports: a node without VPCs may have none.
    const mayHavePorts =
      this.#networkOf(call)?.hasSwitch === true && (call.annotations === undefined || callHasVpcData(call));
    const claim = call.podUid === undefined ? undefined : claims.get(call.podUid);
    const removal = await network.tearDown(call.containerId, {
      signal,
      ifname: ifnameOf(call),
      known: this.#knownPlan(call, claim),
      scan: mayHavePorts ? this.#switchOf(call) : undefined,
    });
    const uid = removal.podUid ?? claim?.metadata.name;
    if (uid !== undefined) this.#deps.onPlugged(uid, removal.lost);
    if (!removal.found && claim === undefined && !callHasVpcData(call))
      throw new NicCallError("no-vpc", "nothing of this container is known here, and its pod has no VPC");
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

  async #check(call: NicCall, signal: AbortSignal): Promise<undefined> {
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
  }

  /** Removes the NICs of containers of a network that the runtime does not list. Goes on after failures, and reports them. */
  async #gc({ network: name, attachments }: GcArgs, signal: AbortSignal): Promise<undefined> {
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
    if (failures.length === 0) return;
    throw new NicCallError("internal", `GC: ${failures.map(describeError).slice(0, 5).join("; ")}`, {
      cause: new AggregateError(failures),
    });
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

  async #timed<T>(step: "plumbable" | "plug" | "active", work: () => Promise<T>): Promise<T> {
    const startMs = this.#deps.clock.monotonic();
    const result = await work();
    this.#deps.onStep(step, (this.#deps.clock.monotonic() - startMs) / 1000);
    return result;
  }
}
