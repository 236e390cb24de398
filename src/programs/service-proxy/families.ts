import { existsSync } from "node:fs";
import { IpAddress, type IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { DataPlane, FamilyProxy, type GenerationTracker, type SyncObserver, Tracker } from "#features/service-proxy";
import type { ConntrackPort } from "#kernel/conntrack";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import type { NftElements } from "#kernel/nft-elements";
import type { ServiceProxyConfig } from "./config.ts";
import { nodePortPlaces } from "./node-ports.ts";
import { addressOf, type NodeState } from "./node-state.ts";
import { contextOf, ruleOptionsOf } from "./rule-options.ts";

const ANY = { 4: IpAddress.parse("0.0.0.0"), 6: IpAddress.parse("::") } as const;

/** Address families that this kernel does. */
export function supportedFamilies(stack: Pick<NetStack, "sysctl">): readonly IpFamily[] {
  if (!existsSync("/proc/net/if_inet6")) return [4];
  return stack.sysctl.get("net.ipv6.conf.all.disable_ipv6") === "1" ? [4] : [4, 6];
}

/** The kernel of the namespace that is meant. */
export interface KernelParts {
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly elements: NftElements;
  readonly conntrack: ConntrackPort | undefined;
  readonly generations: GenerationTracker;
}

/** One family's proxy, and what of it follows the Node and the host's addresses. */
export class Family {
  readonly family: IpFamily;
  readonly proxy: FamilyProxy;
  readonly #config: ServiceProxyConfig;
  readonly #stack: NetStack;
  readonly #log: Logger;
  #places: readonly IpAddress[] | undefined;
  #healthAddresses: readonly IpAddress[] = [];
  #detector = "";
  #isLoopbackTold = false;
  #isNodeKnown = false;

  constructor(
    family: IpFamily,
    config: ServiceProxyConfig,
    kernel: KernelParts,
    deps: { readonly node: NodeState; readonly observer: SyncObserver; readonly log: Logger },
  ) {
    this.family = family;
    this.#config = config;
    this.#stack = kernel.stack;
    this.#log = deps.log;
    const rules = ruleOptionsOf(config, deps.node, family, this.#local());
    this.#detector = JSON.stringify(rules.detector ?? null);
    const plane = new DataPlane(
      { nft: kernel.nft, elements: kernel.elements, generations: kernel.generations, log: deps.log },
      { ...rules, tableName: config.tableName },
    );
    const tracker = new Tracker(family, contextOf(config, deps.node, family));
    this.proxy = new FamilyProxy(
      { tracker, plane, conntrack: kernel.conntrack, observer: deps.observer, log: deps.log },
      { minSyncMs: config.minSyncMs, syncMs: config.syncMs },
    );
    this.setHostAddresses(deps.node);
  }

  /** The Node changed: zone, addresses, ranges of pods. */
  setNode(node: NodeState): void {
    if (this.proxy.tracker.setContext(contextOf(this.#config, node, this.family))) this.proxy.request();
    const rules = ruleOptionsOf(this.#config, node, this.family, this.#local());
    const detector = JSON.stringify(rules.detector ?? null);
    if (detector !== this.#detector) {
      this.#detector = detector;
      if (this.#isNodeKnown) this.#log.info("how pods are known has changed", { family: this.family, detector });
      this.proxy.plane.setRules(rules);
      this.proxy.repair();
    }
    this.#isNodeKnown = true;
    this.setHostAddresses(node);
  }

  /** Where health checks of Services are answered: where NodePorts are taken, by one listener where that is everywhere. */
  get healthAddresses(): readonly IpAddress[] {
    return this.#healthAddresses;
  }

  /** The host's addresses may have changed: where NodePorts are taken. */
  setHostAddresses(node: NodeState): void {
    const { mode, addresses, loopback } = nodePortPlaces(
      this.#config,
      this.family,
      this.#local(),
      addressOf(node, this.family),
    );
    // Ranges are the configuration's: telling of them once is enough, however often addresses change.
    for (const range of this.#isLoopbackTold ? [] : loopback)
      this.#log.warn("NodePorts are not taken on loopback; the range is left out", { range: String(range) });
    this.#isLoopbackTold = true;
    this.#healthAddresses = mode === "all-local" ? [ANY[this.family]] : addresses;
    if (this.#places?.join(" ") === addresses.join(" ")) return;
    this.#places = addresses;
    this.proxy.setNodePortAddresses(addresses, (address) => addresses.some((own) => own.equals(address)));
  }

  #local(): readonly IpAddress[] {
    return this.#stack.addresses.list().map(({ address }) => address);
  }
}
