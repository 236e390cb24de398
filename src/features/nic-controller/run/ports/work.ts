import { ProviderError, type Vpc, type VpcPort, type VpcProvider } from "#cloud/vpc";
import type { NamedNic, NicStatus } from "#kube/nic";
import { addressOfUnknownSubnet, bound, failed, groupsOf } from "../../plan/nic.ts";
import { type ClaimRecord, changedNics, deviceLostAt, doubted, nicsOf, podOf, touched } from "../../plan/record.ts";
import type { NicFault } from "../../plan/retry.ts";
import type { PodView } from "../../world.ts";
import type { NicControllerDeps } from "../deps.ts";
import type { ClaimEntry, ClaimLedger } from "../ledger.ts";
import type { PortRequests } from "../requests.ts";

/** The age of what is known of a VPC, in milliseconds, above which it is looked up again when it lacks something: that may be new. */
const MAY_LACK_MS = 1000;

/** The collaborators of steps at the provider. */
export interface PortStepDeps
  extends Pick<NicControllerDeps, "api" | "cluster" | "observer" | "clock" | "random" | "log"> {
  readonly ledger: ClaimLedger;
  readonly requests: PortRequests;
  readonly clusterId: () => string;
}

/** The claim of a step, its provider, and the host of its pod at the provider. */
export interface PortWorkInit {
  readonly entry: ClaimEntry;
  readonly provider: VpcProvider;
  readonly host: string | undefined;
  readonly signal: AbortSignal;
}

/** One step of a claim at its provider. What the provider answers becomes part of the claim's record by the methods of this class. */
export class PortWork {
  readonly deps: PortStepDeps;
  readonly entry: ClaimEntry;
  readonly provider: VpcProvider;
  readonly host: string | undefined;
  readonly options: { readonly signal: AbortSignal };

  constructor(deps: PortStepDeps, { entry, provider, host, signal }: PortWorkInit) {
    this.deps = deps;
    this.entry = entry;
    this.provider = provider;
    this.host = host;
    this.options = { signal };
  }

  /** The record as it is now. */
  get record(): ClaimRecord {
    return this.entry.record;
  }

  /** The NIC of a name as it is now; `undefined`: the claim has none. */
  nic(name: string): NicStatus | undefined {
    return nicsOf(this.record).find((nic) => nic.name === name);
  }

  /** The claim's pod; `undefined`: the cache does not have it. */
  get pod(): PodView | undefined {
    return podOf(this.deps.cluster, this.record);
  }

  /** An event of the pod, if the cache has it. */
  event(type: "Normal" | "Warning", reason: string, note: string): void {
    const { pod } = this;
    if (pod !== undefined) this.deps.observer.event(pod, { type, reason, note });
  }

  /** Notes that a request about the ports was sent or answered: earlier polls are outdated. */
  touch(): void {
    this.entry.update((record) => touched(record, this.deps.clock.monotonic()));
  }

  /** A request for the port of this NIC may have been done, or may be done later. */
  doubt(name: string): void {
    this.entry.update((record) => doubted(record, name, this.deps.clock.monotonic()));
  }

  /** Replaces each NIC by another one. */
  change(change: (nic: NicStatus) => NicStatus): void {
    this.entry.update((record) => changedNics(record, change));
  }

  /** Replaces the NIC of a name. */
  changeOne(name: string, change: (nic: NicStatus) => NicStatus): void {
    this.change((nic) => (nic.name === name ? change(nic) : nic));
  }

  /** The NIC after a failure, with the time of the next attempt. */
  failed(nic: NicStatus, fault: NicFault): NicStatus {
    return failed(nic, fault, this.#when());
  }

  /** NICs have failed; without names all of them. */
  fail(fault: NicFault, names?: ReadonlySet<string>): void {
    this.change((nic) => (names?.has(nic.name) === false ? nic : this.failed(nic, fault)));
  }

  /** The fault of a NIC that an error of the provider is. Rethrows any other error. */
  faultOf(error: unknown): NicFault {
    if (!(error instanceof ProviderError)) throw error;
    return { reason: error.code, message: error.message, retry: error.retry, retryAfterMs: error.retryAfterMs };
  }

  /** A NIC after an attempt to bind its port, which is newer than the loss of its device that the node has reported. */
  bound(
    nic: NicStatus,
    { port, host, agents }: { readonly port: VpcPort; readonly host: string; readonly agents?: string | undefined },
  ): NicStatus {
    const lostAt = deviceLostAt(this.record.claim);
    const known = lostAt === undefined ? nic : { ...nic, lostAt };
    return bound(known, { port, host, agents }, this.#when());
  }

  /** The VPC of the claim. If what is known of it is not whole, it is looked up again: what it lacks may be new. Rejects with `ProviderError`. */
  async vpc(isWhole: (vpc: Vpc) => boolean = () => true): Promise<Vpc> {
    const { vpc, projectID } = this.record.claim.spec;
    const ref = { vpc, projectId: projectID };
    const known = await this.provider.resolve(ref, this.options);
    return isWhole(known) ? known : await this.provider.resolve(ref, { ...this.options, maxAgeMs: MAY_LACK_MS });
  }

  /**
   * The VPC with the subnets of all addresses of some ports; `known` is what is known of it. Rejects with `ProviderError`, also if it does not have one of them:
   * without its subnet an address has neither prefix nor gateway.
   */
  async vpcOf(ports: readonly VpcPort[], known: Vpc): Promise<Vpc> {
    const isWhole = (vpc: Vpc): boolean => ports.every((port) => addressOfUnknownSubnet(port, vpc) === undefined);
    if (isWhole(known)) return known;
    const vpc = await this.vpc(isWhole);
    for (const port of ports) {
      const lacks = addressOfUnknownSubnet(port, vpc);
      if (lacks === undefined) continue;
      const text = `port ${port.id} has the address ${lacks.ip} of subnet ${lacks.subnetId}, which VPC ${vpc.ref} does not show yet`;
      throw new ProviderError("SubnetNotFound", text, { retry: "fast" });
    }
    return vpc;
  }

  /** The groups of a port: those of its NIC, else those of the policy, whose author may name any. */
  groupsOf(wish: NamedNic): { readonly securityGroups: readonly string[]; readonly trustsGroups: boolean } {
    const named = groupsOf(wish);
    if (named.length > 0) return { securityGroups: named, trustsGroups: false };
    return { securityGroups: this.deps.cluster.policy().defaultSecurityGroups ?? [], trustsGroups: true };
  }

  #when(): { readonly now: number; readonly random: number } {
    return { now: this.deps.clock.now(), random: this.deps.random() };
  }
}

/** Does something for several items at the same time, and waits for all of them. Rejects afterwards with the first failure. */
export async function forAll<Item>(items: readonly Item[], work: (item: Item) => Promise<void>): Promise<void> {
  const ends = await Promise.allSettled(items.map(work));
  for (const end of ends) if (end.status === "rejected") throw end.reason;
}
