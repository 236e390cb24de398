import type { Clock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { ConntrackPort } from "#kernel/conntrack";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import { DataPlane, type GenerationTracker } from "../dataplane/index.ts";
import {
  addressOf,
  contextOf,
  type NodeConfig,
  type NodeNetwork,
  nodePortAddressesOf,
  ruleOptionsOf,
} from "../node/index.ts";
import type { AddressJudge } from "../plan/index.ts";
import { type ServiceSteps, Tracker } from "../track/index.ts";
import { FamilyProxy, type SyncObserver } from "./family-proxy.ts";

const ANY = { 4: IpAddress.parse("0.0.0.0"), 6: IpAddress.parse("::") } as const;

/** The kernel of the network namespace that the proxy works in. */
export interface ProxyKernel {
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly elements: NftElements;
  readonly conntrack: ConntrackPort;
  readonly generations: GenerationTracker;
}

/** Configuration of a {@link NodeAwareProxy}. */
export interface NodeAwareProxyConfig extends NodeConfig {
  readonly tableName: string;
  /** Milliseconds, as in `FamilyProxyOptions`. */
  readonly syncMs: number;
  readonly minSyncMs: number;
}

/** The proxy of one family, which follows the Node and the host's addresses. */
export class NodeAwareProxy {
  readonly family: IpFamily;
  readonly proxy: FamilyProxy;
  readonly #config: NodeAwareProxyConfig;
  readonly #stack: NetStack;
  readonly #log: Logger;
  /** The host's addresses as they were read last. */
  #hostAddresses: readonly IpAddress[];
  /** The addresses that take NodePorts, as numbers. */
  #nodePortAddresses: ReadonlySet<bigint> = new Set();
  /** Those whose change has an effect; `undefined`: none was applied yet. */
  #appliedAddresses: string | undefined;
  #healthAddresses: readonly IpAddress[] = [];
  #detector = "";
  #isLoopbackReported = false;
  #isNodeKnown = false;

  /** Throws `KernelError` if the host's addresses cannot be read. */
  constructor(
    family: IpFamily,
    config: NodeAwareProxyConfig,
    kernel: ProxyKernel,
    deps: {
      readonly node: NodeNetwork;
      readonly observer: SyncObserver;
      readonly log: Logger;
      readonly clock: Clock;
      /** Decides about external addresses; absent: Services get all of them. */
      readonly judge?: AddressJudge | undefined;
      /** See {@link Tracker}. */
      readonly steps?: ServiceSteps | undefined;
    },
  ) {
    this.family = family;
    this.#config = config;
    this.#stack = kernel.stack;
    const { log, clock } = deps;
    this.#log = log;
    this.#hostAddresses = this.#listAddresses();
    const rules = ruleOptionsOf(config, deps.node, family, this.#hostAddresses);
    this.#detector = JSON.stringify(rules.detector ?? null);
    const plane = new DataPlane(
      { nft: kernel.nft, elements: kernel.elements, generations: kernel.generations, log, clock },
      { ...rules, tableName: config.tableName },
    );
    const tracker = new Tracker(family, contextOf(config, deps.node, family), {
      judge: deps.judge,
      steps: deps.steps,
    });
    this.proxy = new FamilyProxy(
      { tracker, plane, conntrack: kernel.conntrack, observer: deps.observer, log, clock },
      { minSyncMs: config.minSyncMs, syncMs: config.syncMs },
    );
    this.#applyAddresses(deps.node);
  }

  /** Applies a changed Node: zone, addresses, podCIDRs. Reads nothing from the kernel. */
  setNode(node: NodeNetwork): void {
    if (this.proxy.tracker.setContext(contextOf(this.#config, node, this.family))) this.proxy.request();
    const rules = ruleOptionsOf(this.#config, node, this.family, this.#hostAddresses);
    const detector = JSON.stringify(rules.detector ?? null);
    if (detector !== this.#detector) {
      this.#detector = detector;
      if (this.#isNodeKnown)
        this.#log.info("the method of detecting local traffic has changed", { family: this.family, detector });
      this.proxy.plane.setRules(rules);
      this.proxy.repair();
    }
    this.#isNodeKnown = true;
    this.#applyAddresses(node);
  }

  /** Addresses that serve the health checks of Services: those that take NodePorts, or the wildcard address if all addresses take them. */
  get healthAddresses(): readonly IpAddress[] {
    return this.#healthAddresses;
  }

  /** All addresses of the host, as they were read last. */
  get hostAddresses(): readonly IpAddress[] {
    return this.#hostAddresses;
  }

  /** Reads the host's addresses and applies them: they may take NodePorts. Throws `KernelError`; those that were read last stay in force. */
  readHostAddresses(node: NodeNetwork): void {
    this.#hostAddresses = this.#listAddresses();
    this.#applyAddresses(node);
  }

  #applyAddresses(node: NodeNetwork): void {
    const { mode, addresses, loopback } = nodePortAddressesOf(
      this.#config,
      this.family,
      this.#hostAddresses,
      addressOf(node, this.family),
    );
    // The ranges come from the configuration: one warning is enough, however often addresses change.
    for (const range of this.#isLoopbackReported ? [] : loopback)
      this.#log.warn("NodePorts are not accepted at loopback addresses by rules; the range is ignored", {
        range: String(range),
        fix: "give localhost in its place: service-proxy then listens at 127.0.0.1 and ::1 for NodePorts of TCP",
      });
    this.#isLoopbackReported = true;
    const isEverywhere = mode === "all-local";
    this.#healthAddresses = isEverywhere ? [ANY[this.family]] : addresses;
    this.#nodePortAddresses = new Set(addresses.map(({ value }) => value));
    // Each pod's link has an IPv6 address of its own, which nobody sent to before it was there.
    const isNoted = (one: IpAddress): boolean => !(isEverywhere && one.family === 6 && one.isLinkLocal);
    const noted = addresses.filter(isNoted).join(" ");
    if (this.#appliedAddresses === noted) return;
    const isFirst = this.#appliedAddresses === undefined;
    this.#appliedAddresses = noted;
    if (isEverywhere && !isFirst) this.proxy.localAddressesChanged();
    else
      this.proxy.setNodePortAddresses(isEverywhere ? [] : addresses, ({ value }) => this.#nodePortAddresses.has(value));
  }

  #listAddresses(): readonly IpAddress[] {
    return this.#stack.addresses.list().map(({ address }) => address);
  }
}
