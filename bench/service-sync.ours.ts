/** Our side of service-sync: objects as the API has them, tracker, plan, table. */
import { systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import {
  DataPlane,
  FamilyProxy,
  GenerationTracker,
  portsOf,
  type SliceView,
  type SyncObserver,
  type SyncReport,
  Tracker,
} from "#features/service-proxy";
import type { NetNs } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import type { Service } from "#kube/client";
import { measure, peakMiB, type Sample } from "./service-sync.measure.ts";
import { clusterIP, ENDPOINTS, endpointAddresses, openWorld, SERVICE_PORT, TARGET_PORT } from "./service-sync.world.ts";

const CHANGES = 60;

/** Measures one size. */
export async function runOurs(size: number): Promise<Sample> {
  await using world = await openWorld(`isb-ours-${process.pid}`);
  await using ours = new OurProxy(world.netns, { size });
  return await measure({
    netns: world.netns,
    size,
    fill: async () => ({ bytes: (await ours.fill()).bytes, isDone: true }),
    change: (turn) => ours.change(Math.floor(size / 2), turn),
    changes: CHANGES,
    peakMiB,
  });
}

/** The number of Services and endpoints, and the pace of syncs. */
export interface OurOptions {
  readonly size: number;
  readonly endpoints?: number;
  readonly minSyncMs?: number;
  readonly observer?: SyncObserver;
}

/** The proxy of one family on a table. A second one on the same namespace finds the table of the first. */
export class OurProxy implements AsyncDisposable {
  readonly #nft: ReturnType<typeof openNft>;
  readonly #elements: ReturnType<typeof openNftElements>;
  readonly #tracker = new Tracker(4, { node: { name: "node-a", zone: undefined }, nodeIPs: [] });
  readonly #proxy: FamilyProxy;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  readonly #objects: readonly { readonly service: Service; readonly slice: SliceView }[];
  readonly #endpoints: number;
  #onSynced: (report: SyncReport) => void = () => undefined;
  /** The reports of every sync. */
  readonly reports: SyncReport[] = [];

  constructor(netns: NetNs, { size, endpoints = ENDPOINTS, minSyncMs = 0, observer }: OurOptions) {
    this.#nft = openNft(netns);
    this.#elements = openNftElements(netns);
    this.#endpoints = endpoints;
    const rules = { family: 4, mark: 0x4000, detector: undefined, masqueradeAll: false } as const;
    const plane = new DataPlane(
      {
        nft: this.#nft,
        elements: this.#elements,
        generations: new GenerationTracker(this.#elements),
        clock: systemClock,
        log: nullLogger,
      },
      { ...rules, nodePortAddresses: "set", tableName: "kube-proxy" },
    );
    const own: SyncObserver = {
      ...observer,
      synced: (family, report) => {
        observer?.synced?.(family, report);
        this.reports.push(report);
        this.#onSynced(report);
      },
      failed: (_family, error) => {
        throw error;
      },
    };
    this.#proxy = new FamilyProxy(
      { tracker: this.#tracker, plane, observer: own, clock: systemClock, log: nullLogger },
      { minSyncMs, syncMs: 30_000 },
    );
    this.#running = this.#proxy.run({ signal: this.#stop.signal });
    this.#objects = Array.from({ length: size }, (_, at) => ({
      service: serviceOf(at),
      slice: sliceOf(at, 0, endpoints),
    }));
  }

  /** The first sync, from the list to the kernel. */
  fill(): Promise<SyncReport> {
    for (const { service, slice } of this.#objects) {
      this.#tracker.setService(`ns/${service.metadata.name}`, portsOf(service, 4, { allowExternalIPs: true }));
      this.#tracker.setSlice(`ns/${slice.metadata.name}`, slice);
    }
    const done = this.#nextSync();
    this.#proxy.open();
    return done;
  }

  /** One endpoint of a Service is replaced. */
  async change(service: number, turn: number): Promise<void> {
    const done = this.#nextSync();
    this.tell(service, turn);
    await done;
  }

  /** Changes one endpoint without waiting for the kernel. */
  tell(service: number, turn: number): void {
    const slice = sliceOf(service, turn, this.#endpoints);
    this.#tracker.setSlice(`ns/${slice.metadata.name}`, slice);
    this.#proxy.request();
  }

  /** Resolves when the kernel has all changes. */
  async applied(): Promise<void> {
    while (this.#tracker.isDirty || this.#proxy.isBusy) await this.#nextSync();
  }

  #nextSync(): Promise<SyncReport> {
    return new Promise((resolve) => {
      this.#onSynced = resolve;
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    this.#elements[Symbol.dispose]();
    this.#nft[Symbol.dispose]();
  }
}

function serviceOf(at: number): Service {
  return {
    metadata: { name: `svc-${at}`, namespace: "ns", uid: String(at), resourceVersion: "1" },
    spec: { clusterIP: clusterIP(at).toString(), ports: [{ name: "http", port: SERVICE_PORT, protocol: "TCP" }] },
  };
}

function sliceOf(at: number, turn: number, count: number): SliceView {
  return {
    metadata: { name: `svc-${at}-1`, namespace: "ns", uid: String(at), resourceVersion: String(turn) },
    service: `ns/svc-${at}`,
    family: 4,
    ports: [{ name: "http", protocol: "TCP", port: TARGET_PORT }],
    endpoints: endpointAddresses(at, turn, count).map((address) => ({
      address: address.toString(),
      ready: true,
      serving: true,
      terminating: false,
      nodeName: "node-b",
      zoneHints: [],
      nodeHints: [],
    })),
  };
}
