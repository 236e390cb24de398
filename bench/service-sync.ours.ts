/** Our side of service-sync: objects as the API has them, tracker, plan, table. */
import {
  DataPlane,
  FamilyProxy,
  Ledger,
  portsOf,
  type SliceView,
  type SyncReport,
  Tracker,
} from "#features/service-proxy";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import type { Service } from "#kube/client";
import {
  clusterIP,
  endpointAddresses,
  firstPackets,
  openWorld,
  peakMiB,
  quantiles,
  type Sample,
  SERVICE_PORT,
  TARGET_PORT,
  whileAnswering,
} from "./service-sync.world.ts";

const CHANGES = 60;

/** Measures one size. */
export async function runOurs(size: number): Promise<Sample> {
  await using world = await openWorld(`isb-ours-${process.pid}`);
  using nft = openNft(world.netns);
  using elements = openNftElements(world.netns);
  const tracker = new Tracker(4, { node: { name: "node-a", zone: undefined }, nodeIPs: [] });
  const options = {
    family: 4,
    mark: 0x4000,
    detector: undefined,
    masqueradeAll: false,
    nodePortAddresses: "set",
  } as const;
  const plane = new DataPlane({ nft, elements, ledger: new Ledger(elements) }, { ...options, tableName: "kube-proxy" });
  let onSynced: (report: SyncReport) => void = () => undefined;
  const observer = {
    synced: (_family: number, report: SyncReport): void => onSynced(report),
    failed: (_family: number, error: Error): never => {
      throw error;
    },
  };
  const proxy = new FamilyProxy({ tracker, plane, observer }, { minSyncMs: 0, syncMs: 30_000 });
  const stop = new AbortController();
  const running = proxy.run({ signal: stop.signal });
  const synced = (): Promise<SyncReport> => new Promise((resolve) => (onSynced = resolve));
  const objects = Array.from({ length: size }, (_, at) => ({ service: serviceOf(at), slice: sliceOf(at, 0) }));

  const first = await whileAnswering(async () => {
    const startedAt = performance.now();
    for (const { service, slice } of objects) {
      tracker.setService(`ns/${service.metadata.name}`, portsOf(service, 4, { allowExternalIPs: true }));
      tracker.setSlice(`ns/${slice.metadata.name}`, slice);
    }
    const done = synced();
    proxy.open();
    const report = await done;
    return { ms: performance.now() - startedAt, report };
  });
  const changes: number[] = [];
  for (let turn = 1; turn <= CHANGES; turn += 1) {
    const service = Math.floor(size / 2);
    const slice = sliceOf(service, turn);
    const startedAt = performance.now();
    const done = synced();
    tracker.setSlice(`ns/${slice.metadata.name}`, slice);
    proxy.request();
    await done;
    changes.push(performance.now() - startedAt);
  }
  const firstPacketUs = await firstPackets(world.netns);
  stop.abort();
  await running;
  return {
    firstSyncMs: first.result.ms,
    bytes: first.result.report.bytes,
    peakMiB: peakMiB(),
    changeMs: quantiles(changes),
    firstPacketUs,
    blockMs: first.blockMs,
    answerMs: first.answerMs,
  };
}

function serviceOf(at: number): Service {
  return {
    metadata: { name: `svc-${at}`, namespace: "ns", uid: String(at), resourceVersion: "1" },
    spec: { clusterIP: clusterIP(at).toString(), ports: [{ name: "http", port: SERVICE_PORT, protocol: "TCP" }] },
  };
}

function sliceOf(at: number, turn: number): SliceView {
  return {
    metadata: { name: `svc-${at}-1`, namespace: "ns", uid: String(at), resourceVersion: String(turn) },
    service: `ns/svc-${at}`,
    family: 4,
    ports: [{ name: "http", protocol: "TCP", port: TARGET_PORT }],
    endpoints: endpointAddresses(at, turn).map((address) => ({
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
