import type { Clock } from "#base/clock";
import type { Cidr, IpAddress, IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import { isKernelError } from "#kernel/errors";
import { type ListeningSocket, type SockDiag, takes } from "#kernel/sock-diag";
import { type AddressClaim, type AddressJudge, type ClusterFacts, type Owner, UNDECIDED } from "../plan/index.ts";
import { type AddressMode, type HostFacts, judgeAddress, type PortRange } from "./judge.ts";
import type { OtherNodes } from "./other-nodes.ts";

/** For so long after a boot a socket that begins to listen goes before a Service: programs of the host still start. In milliseconds. */
export const BOOT_MS = 120_000;
/** Time between two questions to the kernel during {@link BOOT_MS}, in milliseconds; and later, while sockets keep Services from addresses. */
const ASK_MS = 5000;
const LOOK_MS = 10_000;
/** For so long the other nodes and the API server's address are waited for, in milliseconds; then claims are judged without them. */
export const PATIENCE_MS = 30_000;
/** One answer of the kernel serves for all Services that are planned within this time, in milliseconds. */
const KNOWN_MS = 500;

/** A socket that began to listen where a Service has got the address already: the Service keeps it. */
export interface LateListener {
  /** `namespace/name` */
  readonly service: string;
  /** `203.0.113.9:80/TCP` */
  readonly frontEnd: string;
}

export interface AddressGuardDeps {
  readonly sockets: SockDiag;
  /** Time since the boot of the machine, in milliseconds. */
  readonly uptimeMs: () => number;
  /** True if an earlier run has given the front end to this Service, as the kernel's table shows. */
  readonly wasGiven: (family: IpFamily, claim: AddressClaim) => boolean;
  readonly onLateListener: (listener: LateListener) => void;
  /** Called when facts have changed: all claims are to be judged again. */
  readonly onChange: () => void;
  readonly clock: Clock;
  readonly log: Logger;
}

export interface AddressGuardOptions {
  readonly mode: AddressMode;
  readonly hostPorts: readonly PortRange[];
  /** `--cluster-cidr`. */
  readonly clusterCIDRs: readonly Cidr[];
}

/** A claim that a socket keeps from its Service. */
interface KeptClaim {
  readonly claim: AddressClaim;
  readonly isOwn: boolean;
}

/**
 * Judges the claims of both families. Asks the kernel for sockets when a claim of an address of this host is judged; what a Service has got it keeps when a
 * socket begins to listen later, but for the first minutes after a boot. Until the other nodes and the API server's address are known a Service has what an
 * earlier run has given it, and nothing else is decided. What is remembered goes with the Service.
 */
export class AddressGuard implements AddressJudge {
  readonly #deps: AddressGuardDeps;
  #facts: HostFacts;
  readonly #clusterCIDRs: readonly Cidr[];
  readonly #host = new Map<IpFamily, readonly string[]>();
  readonly #serviceCIDRs = new Map<IpFamily, readonly Cidr[]>();
  #ownPodCIDRs: readonly Cidr[] = [];
  #otherPodCIDRs: readonly Cidr[] = [];
  /** Keys of the front ends that each Service has got; with true: a socket listens there since. */
  readonly #given = new Map<string, Map<string, boolean>>();
  /** The claims that sockets of the host keep from Services, by Service and key. */
  readonly #kept = new Map<string, Map<string, KeptClaim>>();
  /** The facts that claims wait for, and the time since which the first one waits, by the monotonic clock. */
  readonly #unknown: Set<Unknown>;
  #waitingSince: number | undefined;
  readonly #familiesWithoutRange = new Set<IpFamily>();
  #listeners: { readonly at: number; readonly sockets: readonly ListeningSocket[] | undefined } | undefined;
  #isFailureLogged = false;

  constructor(deps: AddressGuardDeps, { mode, hostPorts, clusterCIDRs }: AddressGuardOptions) {
    this.#deps = deps;
    this.#clusterCIDRs = clusterCIDRs;
    this.#unknown = new Set(mode === "kube-proxy" ? [] : UNKNOWN);
    this.#facts = {
      ...{ mode, hostPorts, ownNode: [], host: new Set<string>(), otherNodes: new Map<string, string>() },
      ...{ podRanges: clusterCIDRs, serviceCIDRs: [], apiServer: undefined },
    };
  }

  /** True while sockets that begin to listen go before Services. */
  get isBooting(): boolean {
    return this.#deps.uptimeMs() < BOOT_MS;
  }

  /** Sets the addresses of the kernel in one family. Those of links, which each pod's link has, are nobody's to claim. */
  setHostAddresses(family: IpFamily, addresses: readonly IpAddress[]): void {
    this.#host.set(family, addresses.filter((one) => !one.isLinkLocal).map(String));
    this.#change({ host: new Set([...this.#host.values()].flat()) });
  }

  setServiceCIDRs(family: IpFamily, cidrs: readonly Cidr[]): void {
    this.#serviceCIDRs.set(family, cidrs);
    this.#change({ serviceCIDRs: [...this.#serviceCIDRs.values()].flat() });
  }

  setNode(addresses: readonly IpAddress[], podCIDRs: readonly Cidr[]): void {
    this.#ownPodCIDRs = podCIDRs;
    this.#change({ ownNode: addresses, podRanges: this.#podRanges() });
  }

  setOtherNodes({ nodes, podCIDRs }: OtherNodes): void {
    this.#otherPodCIDRs = podCIDRs;
    this.#change({ otherNodes: nodes, podRanges: this.#podRanges() }, "Nodes");
  }

  setApiServer(addresses: Iterable<string>, port: number): void {
    this.#change({ apiServer: { addresses: new Set(addresses), port } }, "the API server's address");
  }

  /**
   * Has claims judged again while programs of the host start after a boot, when a socket has gone that kept a Service from an address, and when what they
   * wait for has not come for {@link PATIENCE_MS}. Runs until the signal aborts.
   */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    let wasBooting = this.isBooting;
    const judgeAgain = async (): Promise<PassResult> => {
      const isLeft = this.#takeLeft();
      if (this.#isPatienceOver() || isLeft || wasBooting) this.#deps.onChange();
      wasBooting = this.isBooting;
      return { againMs: wasBooting ? ASK_MS : LOOK_MS };
    };
    const everyMs = wasBooting ? ASK_MS : LOOK_MS;
    await repeat(judgeAgain, { signal, clock: this.#deps.clock, everyMs, startsIdle: true });
  }

  judge(family: IpFamily, claim: AddressClaim, cluster: ClusterFacts): Owner {
    if (this.#unknown.size > 0) {
      this.#waitingSince ??= this.#deps.clock.monotonic();
      return this.#deps.wasGiven(family, claim) ? undefined : UNDECIDED;
    }
    this.#checkRanges(family);
    const judgement = judgeAddress(claim, this.#facts, cluster);
    if (judgement.kind === "refused") return judgement.owner;
    if (judgement.kind === "free") return undefined;
    return this.#unlessListened(family, claim, judgement.kind === "unless-listened");
  }

  forget(service: string): void {
    this.#given.delete(service);
    this.#kept.delete(service);
  }

  /** `isOwn`: the address is this node's; else sockets of this node count at all its addresses but loopback. */
  #unlessListened(family: IpFamily, claim: AddressClaim, isOwn: boolean): string | undefined {
    const { service, key, protocol, port, frontEnd } = claim;
    const given = this.#given.get(service) ?? new Map<string, boolean>();
    this.#given.set(service, given);
    const isListening = isListenedAt({ claim, isOwn }, this.#sockets());
    if (isFree(isOwn, isListening)) {
      given.set(key, false);
      return undefined;
    }
    const isKept = !this.isBooting && (given.has(key) || this.#deps.wasGiven(family, claim));
    if (!isKept) {
      given.delete(key);
      const kept = this.#kept.get(service) ?? new Map<string, KeptClaim>();
      this.#kept.set(service, kept.set(key, { claim, isOwn }));
      if (isListening === undefined) return "this node, whose sockets the kernel does not tell";
      const where = isOwn ? "this node, where" : "another node, and on this one";
      return `${where} a socket listens on ${port}/${protocol}`;
    }
    if (isOwn && isListening === true && given.get(key) !== true) this.#deps.onLateListener({ service, frontEnd });
    given.set(key, isListening === true);
    return undefined;
  }

  /** `undefined`: the kernel does not tell. */
  #sockets(): readonly ListeningSocket[] | undefined {
    const now = this.#deps.clock.monotonic();
    if (this.#listeners === undefined || now - this.#listeners.at >= KNOWN_MS)
      this.#listeners = { at: now, sockets: this.#ask() };
    return this.#listeners.sockets;
  }

  #ask(): readonly ListeningSocket[] | undefined {
    try {
      const sockets = this.#deps.sockets.listeners();
      this.#isFailureLogged = false;
      return sockets;
    } catch (error) {
      if (!isKernelError(error)) throw error;
      if (!this.#isFailureLogged)
        this.#deps.log.error("the kernel does not tell which sockets listen; Services get no address of this node", {
          error: error.message,
          fix: "load inet_diag, tcp_diag and udp_diag (modprobe), or run with --service-addresses=kube-proxy",
        });
      this.#isFailureLogged = true;
      return undefined;
    }
  }

  /** Forgets the claims that no socket keeps from their Services any more. Returns true if there were any. */
  #takeLeft(): boolean {
    if (this.#kept.size === 0) return false;
    const sockets = this.#ask();
    let isLeft = false;
    for (const [service, claims] of this.#kept) {
      for (const [key, one] of claims) {
        if (!isFree(one.isOwn, isListenedAt(one, sockets))) continue;
        claims.delete(key);
        isLeft = true;
      }
      if (claims.size === 0) this.#kept.delete(service);
    }
    return isLeft;
  }

  #isPatienceOver(): boolean {
    const { clock, log } = this.#deps;
    if (this.#waitingSince === undefined || this.#unknown.size === 0) return false;
    if (clock.monotonic() - this.#waitingSince < PATIENCE_MS) return false;
    log.warn("what Services may claim is decided without all that it depends on", { unknown: [...this.#unknown] });
    this.#unknown.clear();
    return true;
  }

  /** Says once for each family that pods' addresses cannot be told from others. */
  #checkRanges(family: IpFamily): void {
    const { mode, podRanges } = this.#facts;
    if (mode === "kube-proxy" || this.#familiesWithoutRange.has(family)) return;
    if (podRanges.some((range) => range.family === family)) return;
    this.#familiesWithoutRange.add(family);
    this.#deps.log.warn("which addresses are pods' is not known: a Service may claim one that is no endpoint", {
      family,
      fix: "set --cluster-cidr to the ranges of the pods: no Node has podCIDRs of the family",
    });
  }

  #podRanges(): readonly Cidr[] {
    return [...this.#clusterCIDRs, ...this.#ownPodCIDRs, ...this.#otherPodCIDRs];
  }

  #change(facts: Partial<HostFacts>, found?: Unknown): void {
    const before = describe(this.#facts);
    this.#facts = { ...this.#facts, ...facts };
    const isDecidable = found !== undefined && this.#unknown.delete(found) && this.#unknown.size === 0;
    if (isDecidable || describe(this.#facts) !== before) this.#deps.onChange();
  }
}

const UNKNOWN = ["Nodes", "the API server's address"] as const;
type Unknown = (typeof UNKNOWN)[number];

/** `undefined`: the kernel does not tell. */
function isListenedAt(
  { claim: { address, protocol, port }, isOwn }: KeptClaim,
  sockets: readonly ListeningSocket[] | undefined,
): boolean | undefined {
  return sockets?.some((one) => {
    if (isOwn) return takes(one, address, protocol, port);
    return one.port === port && one.protocol === protocol && !one.address.isLoopback;
  });
}

/** If the kernel does not tell, only addresses of this node are refused. */
function isFree(isOwn: boolean, isListening: boolean | undefined): boolean {
  return isListening === false || (!isOwn && isListening === undefined);
}

function describe({ ownNode, host, otherNodes, podRanges, serviceCIDRs, apiServer }: HostFacts): string {
  const server = apiServer === undefined ? "" : `${[...apiServer.addresses].sort()} ${apiServer.port}`;
  return [ownNode, [...host].sort(), [...otherNodes].sort(), podRanges, serviceCIDRs, server].map(String).join(";");
}
