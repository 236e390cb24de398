import { type AbortOptions, Deferred, Dirty, unlessAborted } from "#base/async";
import type { Clock } from "#base/clock";
import type { HealthPart } from "#base/health";
import { IpAddress } from "#base/ip";
import type { Logger } from "#base/log";
import { type PassResult, repeat } from "#base/reconcile";
import { CniFailure } from "#features/cni";
import {
  dependsOnTime,
  describeIdentity,
  type Identity,
  type IdentityRules,
  isSettled,
  type Memory,
  NOTHING_SEEN,
  observe,
  type SeenNode,
  type ThisHost,
} from "#features/node-identity";
import type { PodNetwork } from "#features/pod-network";
import type { Node } from "#kube/client";
import type { EventRecorder } from "#kube/events";
import { internalAddresses } from "../../shared/daemon/index.ts";

/** The Node is compared again after this time while time can change the outcome, in milliseconds. */
const LOOK_MS = 1000;
/** As long as only events matter. */
const IDLE_MS = 3_600_000;

/** The dependencies of {@link OwnNode}. */
export interface OwnNodeDeps {
  readonly host: ThisHost;
  readonly network: Pick<PodNetwork, "hasHostAddress" | "setNodeAddresses">;
  readonly events: Pick<EventRecorder, "record">;
  /** Must be `needed: "always"`. */
  readonly health: HealthPart;
  readonly onTwin: (isTwin: boolean) => void;
  /** Called when {@link OwnNode.isSettled} becomes true. */
  readonly onSettled: () => void;
  readonly log: Logger;
  readonly clock: Clock;
}

/**
 * Knows whether the Node object is this machine's (docs/spec/pod-network.md#4.9). Shows what it finds in the health part, the log, a metric, and by an Event on
 * the Node; lets ADDs wait; and gives the pod network the Node's addresses while they are this machine's.
 */
export class OwnNode {
  readonly #deps: OwnNodeDeps;
  readonly #rules: IdentityRules;
  readonly #nodeName: string;
  readonly #dirty: Dirty;
  #memory: Memory = NOTHING_SEEN;
  /** The Node as it was seen last; `undefined` before and while it is deleted. */
  #node: { readonly seen: SeenNode; readonly object: Node } | undefined;
  #changed = new Deferred();
  #said: string | undefined;
  #wasSettled = false;
  #hasGiven = false;

  constructor(deps: OwnNodeDeps, options: { readonly nodeName: string; readonly comparesAddresses: boolean }) {
    this.#deps = deps;
    this.#nodeName = options.nodeName;
    this.#rules = { bootId: deps.host.bootId, comparesAddresses: options.comparesAddresses };
    this.#dirty = new Dirty(deps.clock);
  }

  get identity(): Identity {
    return this.#memory.identity;
  }

  /** True once no other machine can have pods in this Node's blocks: empty blocks may be returned. */
  get isSettled(): boolean {
    return isSettled(this.#memory, this.#deps.clock.monotonic());
  }

  /** Takes a version of the Node; `undefined`: it was deleted. A version that is older than the last one, from an API server's cache, is ignored. */
  see(object: Node | undefined): void {
    const before = this.#node;
    this.#node = object === undefined ? undefined : { seen: seenNode(object), object };
    this.#look();
    if (this.#isIgnored) this.#node = before;
    this.#dirty.mark("node");
  }

  /** Resolves when the Node is this machine's. Rejects with {@link CniFailure} at once for a twin, and otherwise when the signal aborts. */
  async untilOurs({ signal }: AbortOptions): Promise<void> {
    while (this.identity.kind !== "ours") {
      if (this.identity.kind === "twin") throw new CniFailure("try-again", this.#text());
      await unlessAborted(this.#changed.promise, { signal }).catch((error: unknown) => {
        throw new CniFailure("not-ready", this.#text(), { cause: error });
      });
    }
  }

  /** Compares again while time can change the outcome, until the signal aborts. */
  async run({ signal }: { readonly signal: AbortSignal }): Promise<void> {
    const againMs = (): number => {
      const isMoving = dependsOnTime(this.identity) || (this.identity.kind === "ours" && !this.isSettled);
      return isMoving ? LOOK_MS : IDLE_MS;
    };
    const compare = async (): Promise<PassResult> => {
      this.#look();
      return { againMs: againMs() };
    };
    const { clock } = this.#deps;
    await repeat(compare, { signal, clock, dirty: this.#dirty, everyMs: againMs(), startsIdle: true });
  }

  /** True if the Node's version is older than one before. */
  get #isIgnored(): boolean {
    return this.#node !== undefined && this.#memory.last !== this.#node.seen;
  }

  #look(): void {
    const { network, clock } = this.#deps;
    const before = this.identity;
    const node = this.#node;
    const isHere = node !== undefined && addressesOfHost(node.object).some((text) => isAddressOf(network, text));
    this.#memory = observe(this.#memory, { node: node?.seen, isHere, nowMs: clock.monotonic() }, this.#rules);
    if (node !== undefined && !this.#isIgnored && this.#memory.shows === "ours") this.#giveAddresses(node.object);
    this.#report(before);
    const { isSettled } = this;
    if (isSettled && !this.#wasSettled) this.#deps.onSettled();
    this.#wasSettled = isSettled;
  }

  /** Pods use the Node's addresses as gateways. A Node that has been created again has none yet: the earlier ones are kept. */
  #giveAddresses(node: Node): void {
    const addresses = internalAddresses(node);
    if (this.#hasGiven && addresses.ipv4 === undefined && addresses.ipv6 === undefined) return;
    this.#hasGiven = true;
    this.#deps.network.setNodeAddresses(addresses);
  }

  #report(before: Identity): void {
    const { health, onTwin, log } = this.#deps;
    const { identity } = this;
    const text = this.#text();
    const isNews = before.kind !== identity.kind || this.#said !== text;
    if (!isNews) return;
    this.#said = text;
    if (identity.kind === "ours") health.ok();
    // A Node that is suspect for a moment, as when a host has a new address, does not make this program unready.
    else if (identity.kind !== "suspect") health.degraded(text);
    if (before.kind !== identity.kind) {
      onTwin(identity.kind === "twin");
      if (identity.kind === "twin") {
        log.error("another machine has the name of this node: pods cannot start", {
          node: this.#nodeName,
          error: text,
        });
        this.#record("Warning", "NodeNameTwin", `Pods cannot start here: ${text}`);
      } else if (before.kind === "twin") {
        log.info("no other machine has shown the name of this node for two minutes", { node: this.#nodeName });
        this.#record("Normal", "NodeNameUnique", "No other machine has shown this node's name for two minutes.");
      } else if (identity.kind === "suspect") {
        log.warn("this Node shows another machine: pods that start wait", { node: this.#nodeName, error: text });
      }
    }
    this.#changed.resolve();
    this.#changed = new Deferred();
  }

  #record(type: "Normal" | "Warning", reason: string, note: string): void {
    const name = this.#nodeName;
    // As kubelet does it, and as `kubectl describe node` looks for them.
    this.#deps.events.record({ regarding: { apiVersion: "v1", kind: "Node", name, uid: name }, type, reason, note });
  }

  #text(): string {
    return describeIdentity(this.identity, this.#deps.host, this.#nodeName);
  }
}

/** Pure: the fields that are compared. */
export function seenNode({ metadata, status }: Node): SeenNode {
  const ready = (status?.conditions ?? []).find(({ type }) => type === "Ready");
  return {
    uid: metadata.uid,
    resourceVersion: metadata.resourceVersion,
    bootId: status?.nodeInfo?.bootID ?? "",
    machineId: status?.nodeInfo?.machineID ?? "",
    addresses: addressesOfType(status, "InternalIP"),
    heartbeat: String(ready?.lastHeartbeatTime ?? ""),
  };
}

/** The addresses of which one must be on the host. Nodes of some clouds have no InternalIP, because their hosts have no private network. */
function addressesOfHost({ status }: Node): readonly string[] {
  const internal = addressesOfType(status, "InternalIP");
  return internal.length > 0 ? internal : addressesOfType(status, "ExternalIP");
}

function addressesOfType(status: Node["status"], wanted: "InternalIP" | "ExternalIP"): readonly string[] {
  return (status?.addresses ?? []).filter(({ type }) => type === wanted).map(({ address }) => address);
}

function isAddressOf(network: Pick<PodNetwork, "hasHostAddress">, text: string): boolean {
  const address = IpAddress.tryParse(text);
  return address !== undefined && network.hasHostAddress(address);
}
