import { type AbortOptions, TaskGroup } from "#base/async";
import type { Clock } from "#base/clock";
import type { Health, HealthPart } from "#base/health";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import type { Kernel } from "#kernel/net";
import { type KubeApi, type Namespace, type Pod, resources } from "#kube/client";
import { allSynced, createInformer, type Informer, type InformerHealth } from "#kube/informer";
import type { TUNNEL_DRIVERS, TunnelDriver } from "../tunnel/index.ts";
import { ClientDriver } from "./client-driver.ts";
import { ClientPlaces, type KernelPlace } from "./client-places.ts";
import { CLIENT_POD_INDEXES, type ClientPod, clientPod, namesEgress } from "./client-pods.ts";
import { type ClientSourceParts, ClientSources } from "./client-sources.ts";
import { ClientStates } from "./client-states.ts";
import type { ClientNamespace, ClientRecording } from "./types.ts";

/** Collaborators of {@link ClientView}. */
export interface ClientViewParts {
  readonly kernel: Kernel;
  readonly api: KubeApi;
  /** The caller runs it. */
  readonly namespaces: Informer<Namespace, ClientNamespace>;
  /** The pods that the kernel knows, with their namespaces. */
  readonly places: () => readonly KernelPlace[];
  readonly health: Health;
  /** Loads the kernel modules of the tunnel driver, as far as the system has them; the caller has done so once. */
  readonly loadModules: (options: AbortOptions) => Promise<void>;
  readonly onDriver: (driver: TunnelDriver["name"] | "none") => void;
  readonly recording?: ClientRecording | undefined;
  readonly log: Logger;
  readonly clock: Clock;
}

/** All that is known of the pods of a node and of the Egresses that they may use. It plans nothing and changes nothing. */
export class ClientView {
  readonly driver: ClientDriver;
  readonly sources: ClientSources;
  readonly pods: Informer<Pod, ClientPod>;
  readonly places: ClientPlaces;
  readonly states = new ClientStates();
  readonly #namespaces: Informer<Namespace, ClientNamespace>;
  #isSynced = false;
  #hasNamespaces = false;

  constructor(
    parts: ClientViewParts & Pick<ClientSourceParts, "onChange" | "onNamespace" | "onRouter">,
    { nodeName, asked }: { readonly nodeName: string; readonly asked: (typeof TUNNEL_DRIVERS)[number] },
  ) {
    const { kernel, api, namespaces, health, recording, log, clock } = parts;
    this.driver = new ClientDriver({
      kernel,
      asked,
      loadModules: parts.loadModules,
      // Pods without an Egress do not need it.
      health: neverNeeded(health, "tunnel-driver"),
      onChosen: parts.onDriver,
      log,
      clock,
    });
    const onHealth = (plural: string): ((state: InformerHealth) => void) => {
      const part = neverNeeded(health, `watch-${plural}`);
      return (state) => (state.state === "ready" ? part.ok() : part.degraded(state.error));
    };
    this.#namespaces = namespaces;
    const { onChange, onNamespace, onRouter } = parts;
    this.sources = new ClientSources({
      ...{ api, namespaces, onHealth, onChange, onNamespace, onRouter, recording, clock },
    });
    this.pods = createInformer(api, resources.pods, {
      fieldSelector: `spec.nodeName=${nodeName}`,
      transform: clientPod,
      indexers: CLIENT_POD_INDEXES,
      onHealth: onHealth("pods"),
      steps: recording?.stepsFor(resources.pods),
      clock,
    });
    this.places = new ClientPlaces({ kernel, list: parts.places, podsAt: (address) => this.podsAt(address), clock });
  }

  /** The informers that {@link ClientView.run} runs. */
  get informers() {
    return [this.sources.egresses, this.sources.services, this.sources.routers, this.pods] as const;
  }

  /** True once all Egresses, Services, routers and pods are known. */
  get isSynced(): boolean {
    return this.#isSynced;
  }

  podOf(uid: string): ClientPod | undefined {
    return this.pods.store.byIndex("uid", uid)[0];
  }

  /** The pods of this node whose status has an address. */
  podsAt(address: string): readonly ClientPod[] {
    return this.pods.store.byIndex("address", address);
  }

  /** Returns true if a pod names an Egress, is selected by one, or has something of one. */
  isUser(pod: ClientPod): boolean {
    return namesEgress(pod) || this.states.holds(pod.metadata.uid) || this.sources.isSelected(pod);
  }

  /**
   * Returns true while the verdict of an Egress on the pod needs Namespaces that are not known: it would close what is allowed. A program without the right to them serves the
   * pods that need none.
   */
  lacksNamespace(pod: ClientPod): boolean {
    return !this.#hasNamespaces && this.sources.lacksNamespace(pod);
  }

  /** Watches until the signal aborts. `onAll`: all pods may have another client than before. */
  async run({ signal, onAll }: { readonly signal: AbortSignal; readonly onAll: () => void }): Promise<void> {
    const group = new TaskGroup(signal);
    for (const informer of this.informers) group.spawn((at) => informer.run({ signal: at }));
    group.spawn(async (at) => {
      await allSynced(this.informers, { signal: at });
      this.#isSynced = true;
    });
    group.spawn(async (at) => {
      await allSynced([this.#namespaces], { signal: at });
      this.#hasNamespaces = true;
      onAll();
    });
    group.spawn((at) => this.driver.run({ signal: at, onChange: onAll }));
    await group.wait();
  }
}

const FAMILIES: readonly IpFamily[] = [4, 6];

/** Pure: the families in which a pod has an address. */
export function familiesOf({
  addresses,
}: {
  readonly addresses: Readonly<Partial<Record<IpFamily, unknown>>>;
}): readonly IpFamily[] {
  return FAMILIES.filter((family) => addresses[family] !== undefined);
}

/** A part of health without which the program is ready. */
export function neverNeeded(health: Health, name: string): HealthPart {
  const part = health.part(name);
  part.ok();
  return part;
}
