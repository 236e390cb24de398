import {
  type PortRequest,
  ProviderError,
  type ProviderReason,
  type Vpc,
  type VpcPort,
  type VpcProvider,
} from "#cloud/vpc";
import { type NamedNic, type NicStatus, tenantText } from "#kube/nic";
import { DEVICE_OWNER, isOfOther, ownPorts, podOfPort, portIdentity } from "../plan/identity.ts";
import {
  addressOfUnknownSubnet,
  BINDING_TRIES,
  bindingOf,
  bound,
  failed,
  groupsOf,
  hasSubnet,
  instant,
  portFault,
  restored,
  savedDevice,
  settled,
  withoutPort,
  withPort,
} from "../plan/nic.ts";
import type { ClaimStep } from "../plan/plan-claim.ts";
import { type NicFault, retryDelayMs } from "../plan/retry.ts";
import type { NicControllerDeps } from "./deps.ts";
import type { ClaimLedger } from "./ledger.ts";
import { type ClaimRecord, deviceLostAt, NOTHING, nicsOf, podOf, storeStatus } from "./record.ts";
import type { PortRequests } from "./requests.ts";

type Options = { readonly signal: AbortSignal };
/** For how long a request that has no answer may still make a port, in milliseconds: the limit of a bulk, and some more. */
export const DOUBT_MS = 70_000;
/** How often a release looks for ports of requests whose end is not known, in milliseconds. */
const RELEASE_CHECK_MS = 3000;
/** Refusals that the port of an earlier request of the same NIC can have caused: it has the address, the MAC or the last place. */
const MAY_BE_OWN: ReadonlySet<ProviderReason> = new Set(["IpInUse", "MacInUse", "SubnetFull", "ProviderQuota"]);
/** The age of what is known of a VPC, in milliseconds, above which it is looked at again when it lacks something: that may be new. */
const MAY_LACK_MS = 1000;

/** A step that asks the provider. */
export type PortStep = Extract<
  ClaimStep,
  { do: "look-up" | "give-up" | "make" | "unbind" | "bind" | "regroup" | "refuse" }
>;

export interface PortActionsDeps
  extends Pick<NicControllerDeps, "api" | "cluster" | "observer" | "clock" | "random" | "log"> {
  readonly ledger: ClaimLedger;
  readonly requests: PortRequests;
  readonly clusterId: () => string;
}

/** What a step is made with. */
interface Work {
  readonly record: ClaimRecord;
  readonly provider: VpcProvider;
  readonly host: string | undefined;
}

/** What a release has come to. */
export interface ReleaseEnd {
  /** After how many milliseconds it is tried again; `undefined`: nothing is left, and no request can make anything any more. */
  readonly againAfterMs: number | undefined;
  /** Whether ports were given back, which others may wait for. */
  readonly hasFreed: boolean;
}

/** Does the steps of claims at their provider. What the provider refuses is in the status of the record afterwards. */
export class PortActions {
  readonly #deps: PortActionsDeps;

  constructor(deps: PortActionsDeps) {
    this.#deps = deps;
  }

  /** One step. Rejects with what is no failure of the provider, after it has noted what it knows. */
  async perform(step: PortStep, work: Work, options: Options): Promise<void> {
    const { record } = work;
    this.#touch(record);
    try {
      switch (step.do) {
        case "refuse":
          this.#failAll(record, { reason: "QuotaExceeded", message: step.why, retry: "slow" });
          return;
        case "look-up":
          return await this.#lookUp(work, options);
        case "give-up":
          return await this.#giveUp(step, work, options);
        case "regroup":
          return await this.#regroup(step, work, options);
        case "make":
          return await this.#make(step, work, options);
        case "unbind":
          return await this.#unbindAll(step, work, options);
        case "bind":
          return await this.#bindAll(step, work, options);
      }
    } finally {
      this.#touch(record);
    }
  }

  /**
   * Deletes the ports that were made for a claim, and gives users' ports back (docs/spec/vpc-nics.md#5.7). Failures are in the record.
   */
  async release({ record, provider }: Omit<Work, "host">, options: Options): Promise<ReleaseEnd> {
    this.#touch(record);
    const { cluster, log } = this.#deps;
    if (cluster.pod(record.uid) !== undefined && podOf(cluster, record) === undefined) {
      log.warn("a claim is a copy of another namespace's, so it has no ports", { claim: record.uid });
      return { againAfterMs: undefined, hasFreed: false };
    }
    let ports: readonly VpcPort[];
    const foreign = new Set<string>();
    try {
      ports = await this.#deps.requests.find(provider, record.uid, options);
      for (const port of await this.#recordedOf(record, ports, provider, options)) {
        if (isOfOther(port, record.namespace)) foreign.add(port.id);
      }
    } catch (error) {
      this.#failAll(record, this.#faultOf(error));
      return { againAfterMs: this.#pauseOf(record), hasFreed: false };
    }
    const nics = nicsOf(record);
    const recorded = nics.flatMap(({ createdByController, portID }) =>
      createdByController === true && portID !== undefined && !foreign.has(portID) ? [portID] : [],
    );
    if (foreign.size > 0) log.warn("ports of another namespace are left", { claim: record.uid, ports: [...foreign] });
    const made = new Set(recorded);
    const lent = nics.filter(
      ({ createdByController, portID }) =>
        // One that has another device by now is somebody else's.
        createdByController === false &&
        portID !== undefined &&
        ports.some(({ id, deviceId }) => id === portID && deviceId === record.uid) &&
        this.#deps.ledger.holderOf(portID, record) === undefined,
    );
    for (const { port, surplus } of ownPorts(ports, record.uid, new Map(), record.namespace).values()) {
      for (const { id } of [port, ...surplus]) if (!lent.some(({ portID }) => portID === id)) made.add(id);
    }
    const gone = new Set<string>();
    const ends = await Promise.allSettled([
      ...Array.from(made, async (id) => {
        await provider.deletePort(id, options);
        gone.add(id);
      }),
      ...lent.map((nic) => provider.releasePort(nic.portID ?? "", restored(nic), options)),
    ]);
    this.#noteDeleted(record, gone);
    const failures = ends.flatMap((end) => (end.status === "rejected" ? [end.reason] : []));
    // What had no answer may be done, and a port that is not recorded is not found again then.
    const mayBeDone = failures.some((error) => error instanceof ProviderError && error.isAmbiguous);
    const hasFreed = gone.size > 0 || lent.length > 0 || mayBeDone;
    const faults = failures.map((error) => this.#faultOf(error));
    if (faults.length > 0) {
      // All ports are tried again together, so several failures are one attempt that has failed.
      const pauseMs = (fault: NicFault): number => retryDelayMs(fault, 1, 0);
      this.#failAll(
        record,
        faults.reduce((one, other) => (pauseMs(other) > pauseMs(one) ? other : one)),
      );
      return { againAfterMs: this.#pauseOf(record), hasFreed };
    }
    // A request may still make a port, or take a user's: nobody would delete the one or give back the other once the claim is gone.
    const isInDoubt = record.doubtful.size > 0 || record.mayHaveSeconds;
    const doubtMs = !isInDoubt ? 0 : record.doubtUntil - this.#deps.clock.monotonic();
    if (doubtMs > 0) return { againAfterMs: Math.min(doubtMs, RELEASE_CHECK_MS), hasFreed };
    return { againAfterMs: undefined, hasFreed };
  }

  /** NICs whose ports a release has deleted have none any more, so that a later attempt, of the next leader too, asks for the others alone. */
  #noteDeleted(record: ClaimRecord, ids: ReadonlySet<string>): void {
    const { podName, podUID } = record.claim.spec;
    const pod = { metadata: { name: podName, namespace: record.namespace, uid: podUID, resourceVersion: "" } };
    this.#change(record, (nic) => {
      const { name, portID } = nic;
      if (portID === undefined || !ids.has(portID)) return nic;
      this.#deps.observer.event(pod, { type: "Normal", reason: "PortDeleted", note: `${name}: port ${portID}` });
      return withoutPort(nic);
    });
  }

  /** The time until the first NIC that has failed may be tried again, in milliseconds. */
  #pauseOf(record: ClaimRecord): number {
    const now = this.#deps.clock.now();
    const pauses = nicsOf(record)
      .map(({ nextRetryAt }) => Date.parse(nextRetryAt ?? "") - now)
      .filter((ms) => ms > 0);
    return pauses.length === 0 ? RELEASE_CHECK_MS : Math.min(...pauses);
  }

  /** The ports that a claim says to have been made for it, also those that have another device by now. */
  async #recordedOf(
    record: ClaimRecord,
    found: readonly VpcPort[],
    provider: VpcProvider,
    options: Options,
  ): Promise<readonly VpcPort[]> {
    const ids = nicsOf(record).flatMap(({ createdByController, portID }) =>
      createdByController === true && portID !== undefined ? [portID] : [],
    );
    const absent = ids.filter((id) => !found.some((port) => port.id === id));
    const others = absent.length === 0 ? [] : [...(await provider.getPorts(absent, options)).values()];
    return [...found.filter(({ id }) => ids.includes(id)), ...others];
  }

  /**
   * Releases the ports of NICs that the pod does not want any more. A NIC is forgotten once nothing of it is left, and no request for its port can
   * still be under way: a NIC of the same name would get that port.
   */
  async #giveUp(
    { names }: Extract<PortStep, { do: "give-up" }>,
    { record, provider }: Work,
    options: Options,
  ): Promise<void> {
    const { ledger, observer, clock, log } = this.#deps;
    const of = (error: unknown, name: string): void => {
      const fault = this.#faultOf(error);
      this.#changeOne(record, name, (nic) => this.#failed(nic, fault));
    };
    let ports: readonly VpcPort[];
    try {
      ports = await this.#deps.requests.find(provider, record.uid, options);
    } catch (error) {
      for (const name of names) of(error, name);
      return;
    }
    const own = ownPorts(ports, record.uid, new Map(), record.namespace);
    const giveUp = async (name: string): Promise<void> => {
      const nic = nicsOf(record).find((one) => one.name === name);
      if (nic === undefined) return;
      const { port, surplus = [] } = own.get(name) ?? {};
      const ids = new Set([port, ...surplus].flatMap((one) => (one === undefined ? [] : [one.id])));
      const { portID, createdByController } = nic;
      if (portID !== undefined && createdByController === true) ids.add(portID);
      try {
        for (const id of ids) await provider.deletePort(id, options);
        // One that has another device by now is somebody else's.
        const isLent =
          createdByController === false && ports.some((one) => one.id === portID && one.deviceId === record.uid);
        if (isLent && portID !== undefined) await provider.releasePort(portID, restored(nic), options);
      } catch (error) {
        of(error, name);
        return;
      }
      const doubtMs = record.doubtful.has(name) ? record.doubtUntil - clock.monotonic() : 0;
      if (doubtMs > 0) {
        this.#changeOne(record, name, (one) => ({ ...one, nextRetryAt: instant(clock.now() + doubtMs) }));
        return;
      }
      if (portID !== undefined) ledger.free(portID, record);
      record.status = { ...record.status, nics: nicsOf(record).filter((one) => one.name !== name) };
      log.info("NIC given up", { claim: record.uid, nic: name, port: portID });
      const pod = podOf(this.#deps.cluster, record);
      if (pod === undefined) return;
      for (const id of ids) observer.event(pod, { type: "Normal", reason: "PortDeleted", note: `${name}: port ${id}` });
    };
    const ends = await Promise.allSettled(names.map(giveUp));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  /** Gives ports other security groups. A failure leaves them those that they have, and the NIC works on. */
  async #regroup({ nics }: Extract<PortStep, { do: "regroup" }>, work: Work, options: Options): Promise<void> {
    const { record, provider } = work;
    const { cluster, observer, log } = this.#deps;
    const regroup = async (wish: NamedNic): Promise<void> => {
      const nic = nicsOf(record).find(({ name }) => name === wish.name);
      if (nic?.portID === undefined) return;
      try {
        const vpc = await this.#vpc(work, options);
        await provider.setSecurityGroups(nic.portID, { vpc, ...this.#groupsOf(wish) }, options);
        log.info("security groups changed", { claim: record.uid, nic: wish.name, port: nic.portID });
        this.#changeOne(record, wish.name, (one) => ({ ...settled(one), securityGroups: [...groupsOf(wish)] }));
      } catch (error) {
        const fault = this.#faultOf(error);
        this.#changeOne(record, wish.name, (one) => ({ ...this.#failed(one, fault), state: one.state }));
        const pod = podOf(cluster, record);
        const note = `${wish.name}: the port keeps its security groups: ${tenantText(fault)}`;
        if (pod !== undefined && nic.reason !== fault.reason) {
          observer.event(pod, { type: "Warning", reason: fault.reason, note });
        }
      }
    };
    const ends = await Promise.allSettled(nics.map(regroup));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  /** Finds ports that were made already, by an earlier process or a request without an answer (docs/spec/vpc-nics.md#5.3). */
  async #lookUp(work: Work, options: Options): Promise<void> {
    const { record, provider } = work;
    try {
      const ports = await this.#deps.requests.find(provider, record.uid, options);
      record.undeleted.clear();
      const recorded = new Map(
        nicsOf(record).flatMap(({ name, portID }) => (portID === undefined ? [] : [[name, portID]])),
      );
      if (ownPorts(ports, record.uid, recorded, record.namespace).size > 0) {
        const vpc = await this.#vpc(work, options);
        // Whoever may make ports can give them any name, device and owner; one elsewhere is not this pod's.
        const inVpc = ports.filter(({ networkId }) => networkId === "" || vpc.networks.has(networkId));
        const empty = await this.#deleteEmpty(inVpc, work, options);
        const there = inVpc.filter(({ id }) => !empty.has(id));
        const own = ownPorts(there, record.uid, recorded, record.namespace);
        const adopted = nicsOf(record).flatMap(({ name, portID }) =>
          portID === undefined ? (own.get(name)?.port ?? []) : [],
        );
        const whole = await this.#vpcOf(adopted, vpc, work, options);
        record.surplus = [...own.values()].flatMap(({ surplus }) => surplus.map(({ id }) => id));
        this.#change(record, (nic) => {
          const found = own.get(nic.name);
          if (nic.portID !== undefined || found === undefined) return nic;
          this.#deps.log.info("port adopted", { claim: record.uid, nic: nic.name, port: found.port.id });
          const wish = record.claim.spec.nics.find(({ name }) => name === nic.name);
          return withPort(nic, { port: found.port, vpc: whole, created: true, wish, now: this.#deps.clock.now() });
        });
      }
      // What a refusal has asked for says nothing of the next request, which is made after a pause.
      record.isLookedUp = record.mayHavePort.size === 0;
      record.mayHavePort.clear();
    } catch (error) {
      const fault = this.#faultOf(error);
      record.mayHavePort.clear();
      // Others have their ports, and a pod may use them.
      this.#change(record, (nic) => (nic.portID === undefined ? this.#failed(nic, fault) : nic));
    }
  }

  /**
   * Deletes ports that were made for NICs without one and have no address, as in a network without subnets: they are of no use (docs/spec/vpc-nics.md#6.3).
   * Returns their ids, also of those that cannot be deleted: their NICs show why, and the next look-up finds them.
   */
  async #deleteEmpty(
    ports: readonly VpcPort[],
    { record, provider }: Work,
    options: Options,
  ): Promise<ReadonlySet<string>> {
    const empty = new Set<string>();
    const wanting = new Set(nicsOf(record).flatMap(({ name, portID }) => (portID === undefined ? [name] : [])));
    for (const [nic, { port, surplus }] of ownPorts(ports, record.uid, new Map(), record.namespace)) {
      if (!wanting.has(nic)) continue;
      for (const { id, addresses, networkId } of [port, ...surplus]) {
        if (addresses.length > 0) continue;
        empty.add(id);
        let fault: NicFault = {
          reason: "NoAddress",
          message: `network ${networkId} has no subnet that gives an address`,
          retry: "slow",
        };
        try {
          await provider.deletePort(id, options);
          this.#deps.log.info("port without an address deleted", { claim: record.uid, nic, port: id });
        } catch (error) {
          fault = this.#faultOf(error);
          record.undeleted.add(nic);
        }
        this.#changeOne(record, nic, (one) => this.#failed(one, fault));
      }
    }
    return empty;
  }

  async #make({ create, take }: Extract<PortStep, { do: "make" }>, work: Work, options: Options): Promise<void> {
    const { record } = work;
    let vpc: Vpc;
    try {
      const isWhole = (one: Vpc): boolean => [...create, ...take].every(({ subnet }) => hasSubnet(one, subnet));
      vpc = await this.#vpc(work, options, isWhole);
    } catch (error) {
      const names = new Set([...create, ...take].map(({ name }) => name));
      const fault = this.#faultOf(error);
      this.#change(record, (nic) => (names.has(nic.name) ? this.#failed(nic, fault) : nic));
      return;
    }
    const ends = await Promise.allSettled(create.map((wish) => this.#create(wish, vpc, work, options)));
    for (const wish of take) await this.#take(wish, vpc, work, options);
    // What is known is noted before a failure that ends the pass.
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  async #create(wish: NamedNic, vpc: Vpc, work: Work, options: Options): Promise<void> {
    const { record, provider, host } = work;
    const { observer, clock, requests, log } = this.#deps;
    const request: PortRequest = {
      identity: portIdentity(record.uid, {
        cluster: this.#deps.clusterId(),
        namespace: record.namespace,
        pod: record.claim.spec.podName,
        nic: wish.name,
      }),
      vpc,
      wish: {
        subnet: wish.subnet,
        ip: wish.ip,
        mac: wish.mac,
        ...this.#groupsOf(wish),
        wantsIpv6: wish.ipv6Enabled === true,
        refusesIpv6: wish.ipv6Enabled === false,
      },
      host,
    };
    let result: Awaited<ReturnType<PortRequests["create"]>>;
    try {
      result = await requests.create(provider, request, options);
    } catch (error) {
      // Whether the request was sent is not known.
      this.#doubt(record, wish.name);
      if (!(error instanceof ProviderError)) throw error;
      result = { error };
    }
    if ("error" in result) {
      const { error } = result;
      if (error.isAmbiguous) this.#doubt(record, wish.name);
      // An earlier request, of another process too, may have made the port by the next attempt.
      record.isLookedUp = false;
      if (MAY_BE_OWN.has(error.code)) record.mayHavePort.add(wish.name);
      log.info("port not made", { claim: record.uid, nic: wish.name, reason: error.code, requestId: error.requestId });
      const fault = this.#withHolder(this.#faultOf(error), { wish, vpc, record });
      this.#changeOne(record, wish.name, (nic) => this.#failed(nic, fault));
      return;
    }
    const { port } = result;
    log.info("port made", { claim: record.uid, pod: record.claim.spec.podName, nic: wish.name, port: port.id });
    const pod = podOf(this.#deps.cluster, record);
    const address = port.addresses.map(({ ip }) => ip).join(", ");
    if (pod !== undefined) {
      observer.event(pod, { type: "Normal", reason: "PortCreated", note: `${wish.name}: port ${port.id}, ${address}` });
    }
    let whole: Vpc;
    try {
      whole = await this.#vpcOf([port], vpc, work, options);
    } catch (error) {
      // It is found again by its identity.
      record.isLookedUp = false;
      const fault = this.#faultOf(error);
      this.#changeOne(record, wish.name, (nic) => this.#failed(nic, fault));
      return;
    }
    this.#changeOne(record, wish.name, (nic) => {
      const made = {
        ...withPort(nic, { port, vpc: whole, created: true, wish, now: clock.now() }),
        securityGroups: [...groupsOf(wish)],
      };
      return host === undefined ? made : this.#bound(record, made, { port, host });
    });
  }

  /** Takes a port of the user (docs/spec/vpc-nics.md#6.5). What it had is stored before it is changed. */
  async #take(wish: NamedNic, known: Vpc, work: Work, options: Options): Promise<void> {
    const { record, provider, host } = work;
    const { api, ledger, clock } = this.#deps;
    const id = wish.portID ?? "";
    try {
      const port = (await provider.getPorts([id], options)).get(id);
      const vpc =
        port === undefined || isOfVpc(port, known)
          ? known
          : await this.#vpc(work, options, (one) => isOfVpc(port, one));
      const uid = ledger.holderOf(id, record);
      const holder = uid === undefined ? undefined : `pod ${ledger.holderName(id) ?? ""} (uid ${uid})`;
      const madeFor = port === undefined ? undefined : podOfPort(port, this.#deps.clusterId());
      const other = nicsOf(record).find(({ name, portID }) => name !== wish.name && portID === id)?.name;
      const fault = portFault(port, {
        wish,
        vpc,
        podUID: record.uid,
        host,
        holder,
        madeFor,
        other,
        projectID: record.claim.spec.projectID,
      });
      if (fault !== undefined || port === undefined) {
        if (fault !== undefined) this.#changeOne(record, wish.name, (nic) => this.#failed(nic, fault));
        return;
      }
      await this.#vpcOf([port], vpc, work, options);
      ledger.hold(id, record);
      this.#changeOne(record, wish.name, (nic) => ({
        ...nic,
        portID: id,
        createdByController: false,
        savedDevice: savedDevice(nic, port, record.uid),
      }));
      await storeStatus(api, record, options);
      const device = { host: host ?? port.binding.host, deviceId: record.uid, deviceOwner: DEVICE_OWNER };
      const taken = await provider.bindPort(id, device, { ...options, ifRevision: port.revision });
      const whole = await this.#vpcOf([taken], vpc, work, options);
      this.#changeOne(record, wish.name, (nic) => {
        const made = withPort(nic, { port: taken, vpc: whole, created: false, wish, now: clock.now() });
        return host === undefined ? made : this.#bound(record, made, { port: taken, host });
      });
    } catch (error) {
      const fault = this.#faultOf(error);
      if (error instanceof ProviderError && error.isAmbiguous) this.#doubt(record, wish.name);
      this.#changeOne(record, wish.name, (nic) => this.#failed(nic, fault));
    }
  }

  async #bindAll({ nics, host }: Extract<PortStep, { do: "bind" }>, work: Work, options: Options): Promise<void> {
    const ends = await Promise.allSettled(nics.map(({ name }) => this.#bind(name, host, work, options)));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  async #bind(name: string, host: string, { record, provider }: Work, options: Options): Promise<void> {
    const nic = nicsOf(record).find((one) => one.name === name);
    const id = nic?.portID;
    if (nic === undefined || id === undefined) return;
    try {
      const port = await this.#rebind(nic, id, host, { record, provider }, options);
      if (port === undefined) return;
      const tries = nic.reason === "BindingFailed" ? (nic.attempts ?? 0) + 1 : 1;
      const agents = tries >= BINDING_TRIES ? await provider.describeHost(host, options) : undefined;
      this.#changeOne(record, name, (one) => this.#bound(record, one, { port, host, agents }));
    } catch (error) {
      const fault = this.#faultOf(error);
      if (fault.reason === "PortNotFound") record.observation = { ...record.observation, missing: new Set([id]) };
      else this.#changeOne(record, name, (one) => this.#failed(one, fault));
    }
  }

  /** Takes the binding of ports; they are bound again by the next step, also by another process. */
  async #unbindAll({ nics }: Extract<PortStep, { do: "unbind" }>, work: Work, options: Options): Promise<void> {
    const ends = await Promise.allSettled(nics.map(({ name }) => this.#unbind(name, work, options)));
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  async #unbind(name: string, { record, provider }: Work, options: Options): Promise<void> {
    const nic = nicsOf(record).find((one) => one.name === name);
    const id = nic?.portID;
    if (nic === undefined || id === undefined) return;
    try {
      const port = await this.#rebind(nic, id, "", { record, provider }, options);
      if (port === undefined) return;
      this.#deps.log.info("device lost, so the port is bound anew", { claim: record.uid, nic: name, port: id });
      this.#changeOne(record, name, (one) => ({ ...settled(one), ...bindingOf(port), state: "InProgress" }));
    } catch (error) {
      const fault = this.#faultOf(error);
      if (fault.reason === "PortNotFound") record.observation = { ...record.observation, missing: new Set([id]) };
      else this.#changeOne(record, name, (one) => this.#failed(one, fault));
    }
  }

  /** Binds the port of a NIC to a host, or to none. Returns `undefined` if a user's port is another device's by now, which the NIC then shows. */
  async #rebind(
    { name, createdByController }: NicStatus,
    id: string,
    host: string,
    { record, provider }: Pick<Work, "record" | "provider">,
    options: Options,
  ): Promise<VpcPort | undefined> {
    let ifRevision: number | undefined;
    if (createdByController === false) {
      const port = (await provider.getPorts([id], options)).get(id);
      if (port !== undefined && port.deviceId !== record.uid) {
        const holder = this.#deps.ledger.podWith((one) => one.portID === id, record);
        const by = holder === undefined ? "" : `pod ${holder}, `;
        const message = `port ${id} is in use by ${by}device ${port.deviceId || "(none)"}: it was taken away from the pod`;
        this.#changeOne(record, name, (one) => this.#failed(one, { reason: "PortInUse", message, retry: "slow" }));
        return undefined;
      }
      ifRevision = port?.revision;
    }
    const device = { host, deviceId: record.uid, deviceOwner: DEVICE_OWNER };
    return provider.bindPort(id, device, { ...options, ifRevision });
  }

  /** A NIC after an attempt to bind its port, which is newer than the loss of its device that the node has told. */
  #bound(
    record: ClaimRecord,
    nic: NicStatus,
    { port, host, agents }: { readonly port: VpcPort; readonly host: string; readonly agents?: string | undefined },
  ): NicStatus {
    const lostAt = deviceLostAt(record.claim);
    const known = lostAt === undefined ? nic : { ...nic, lostAt };
    return bound(known, { port, host, agents }, this.#when());
  }

  /** The VPC of a claim. If what is known of it is not whole, it is looked at again: what it lacks may be new. */
  async #vpc(
    { record, provider }: Pick<Work, "record" | "provider">,
    options: Options,
    isWhole: (vpc: Vpc) => boolean = () => true,
  ): Promise<Vpc> {
    const { vpc, projectID } = record.claim.spec;
    const ref = { vpc, projectId: projectID };
    const known = await provider.resolve(ref, options);
    return isWhole(known) ? known : await provider.resolve(ref, { ...options, maxAgeMs: MAY_LACK_MS });
  }

  /**
   * The VPC with the subnets of all addresses of some ports; `known` is what is known of it. Rejects with `ProviderError`, also if it does not have one of them:
   * without its subnet an address has neither prefix nor gateway.
   */
  async #vpcOf(
    ports: readonly VpcPort[],
    known: Vpc,
    work: Pick<Work, "record" | "provider">,
    options: Options,
  ): Promise<Vpc> {
    const isWhole = (vpc: Vpc): boolean => ports.every((port) => addressOfUnknownSubnet(port, vpc) === undefined);
    if (isWhole(known)) return known;
    const vpc = await this.#vpc(work, options, isWhole);
    for (const port of ports) {
      const lacks = addressOfUnknownSubnet(port, vpc);
      if (lacks === undefined) continue;
      const text = `port ${port.id} has the address ${lacks.ip} of subnet ${lacks.subnetId}, which VPC ${vpc.ref} does not show yet`;
      throw new ProviderError("SubnetNotFound", text, { retry: "fast" });
    }
    return vpc;
  }

  /** The groups of a port: those of its NIC, else those of the policy, whose author may name any. */
  #groupsOf(wish: NamedNic): { readonly securityGroups: readonly string[]; readonly trustsGroups: boolean } {
    const named = groupsOf(wish);
    if (named.length > 0) return { securityGroups: named, trustsGroups: false };
    return { securityGroups: this.#deps.cluster.policy().defaultSecurityGroups ?? [], trustsGroups: true };
  }

  /** Rethrows what is no failure of the provider. */
  #faultOf(error: unknown): NicFault {
    if (!(error instanceof ProviderError)) throw error;
    return { reason: error.code, message: error.message, retry: error.retry, retryAfterMs: error.retryAfterMs };
  }

  /** A refusal of an address or a MAC with the pod of this cluster that has it, for operators. */
  #withHolder(
    fault: NicFault,
    { wish, vpc, record }: { readonly wish: NamedNic; readonly vpc: Vpc; readonly record: ClaimRecord },
  ): NicFault {
    const isMeant = holds(fault.reason, wish, vpc);
    const holder = isMeant === undefined ? undefined : this.#deps.ledger.podWith(isMeant, record);
    return holder === undefined ? fault : { ...fault, message: `${fault.message}; pod ${holder} has it` };
  }

  #failed(nic: NicStatus, fault: NicFault): NicStatus {
    return failed(nic, fault, this.#when());
  }

  #failAll(record: ClaimRecord, fault: NicFault): void {
    this.#change(record, (nic) => this.#failed(nic, fault));
  }

  #when(): { readonly now: number; readonly random: number } {
    return { now: this.#deps.clock.now(), random: this.#deps.random() };
  }

  #changeOne(record: ClaimRecord, name: string, change: (nic: NicStatus) => NicStatus): void {
    this.#change(record, (nic) => (nic.name === name ? change(nic) : nic));
  }

  #change(record: ClaimRecord, change: (nic: NicStatus) => NicStatus): void {
    record.status = { ...record.status, nics: nicsOf(record).map(change) };
  }

  /** A port may be there, or come later: it is looked for before another is made, and for a while after that. */
  #doubt(record: ClaimRecord, nic: string): void {
    const now = this.#deps.clock.monotonic();
    record.isLookedUp = false;
    record.doubtful = new Set([...(now < record.doubtUntil ? record.doubtful : []), nic]);
    record.doubtUntil = now + DOUBT_MS;
  }

  /** What was seen of the ports until now is outdated. */
  #touch(record: ClaimRecord): void {
    record.touchedAt = this.#deps.clock.monotonic();
    record.observation = { ...NOTHING, missing: record.observation.missing };
  }
}

/** Whether a NIC has the address or the MAC that a wish was refused; `undefined` for other refusals. Pure. */
function holds(reason: NicFault["reason"], { ip, mac }: NamedNic, vpc: Vpc): ((nic: NicStatus) => boolean) | undefined {
  const isIn = ({ networkID = "" }: NicStatus): boolean => vpc.networks.has(networkID);
  if (reason === "IpInUse" && ip !== undefined)
    return (nic) => isIn(nic) && (nic.ips ?? []).some((one) => one.ip === ip);
  if (reason === "MacInUse" && mac !== undefined)
    return (nic) => isIn(nic) && nic.mac?.toLowerCase() === mac.toLowerCase();
  return undefined;
}

/** Whether a VPC has the network of a port, and the subnets of its addresses. */
function isOfVpc(port: VpcPort, vpc: Vpc): boolean {
  return vpc.networks.has(port.networkId) && addressOfUnknownSubnet(port, vpc) === undefined;
}
