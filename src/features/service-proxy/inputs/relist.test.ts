import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { type Clock, FakeClock, systemClock } from "#base/clock";
import { nullLogger } from "#base/log";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import { type KubeApi, KubeError } from "#kube/client";
import { DataPlane, GenerationTracker, type SyncReport, type WantedState } from "../dataplane/index.ts";
import { FamilyProxy } from "../run/index.ts";
import { NODE, ruleOptions } from "../testing/fixture.ts";
import { Tracker } from "../track/index.ts";
import { watchInputs } from "./inputs.ts";

const REPORT: SyncReport = { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
/** Slices of other Services: more objects than one slice of time is enough for. */
const OTHERS = 50;

/** Remembers how many endpoints the Service had in each sync. */
class CountingPlane extends DataPlane {
  readonly endpoints: number[] = [];

  override async sync({ services }: WantedState): Promise<SyncReport> {
    this.endpoints.push(...Array.from(services.frontEnds(), ([, { slots }]) => slots.length));
    return REPORT;
  }
}

/** A clock by which each slice of time is over at once, as on a slow node. */
class SlowNodeClock extends FakeClock implements Clock {
  #reads = 0;

  override monotonic(): number {
    this.#reads += 1;
    return super.monotonic() + this.#reads * 10;
  }
}

const meta = (name: string): object => ({ name, namespace: "ns", uid: `uid-${name}`, resourceVersion: "1" });
const slice = (name: string, service: string, address: string): object => ({
  metadata: { ...meta(name), labels: { "kubernetes.io/service-name": service } },
  addressType: "IPv4",
  ports: [{ name: "", port: 8443, protocol: "TCP" }],
  endpoints: [{ addresses: [address] }],
});
const SERVICE = { metadata: meta("web"), spec: { clusterIPs: ["10.96.0.1"], ports: [{ port: 443, protocol: "TCP" }] } };

test("relist: slices that were replaced meanwhile never leave their Service without endpoints", async () => {
  const others = Array.from({ length: OTHERS }, (_, at) => slice(`other-${at}`, "other", `10.1.1.${at}`));
  const lists: Record<string, object[][]> = {
    services: [[SERVICE]],
    endpointslices: [
      [slice("web-a", "web", "10.1.0.1"), ...others],
      [...others, slice("web-b", "web", "10.1.0.2")],
    ],
  };
  const [expired, relisted] = [new Deferred(), new Deferred()];
  let watches = 0;
  const api = {
    whenOpen: async () => "open",
    async *listPages({ plural }: { plural: string }) {
      const items = lists[plural]?.shift() ?? [];
      yield { items: structuredClone(items), resourceVersion: "1", remainingItemCount: undefined };
    },
    async *watch({ plural }: { plural: string }, { signal }: { signal: AbortSignal }) {
      if (plural === "endpointslices") {
        watches += 1;
        if (watches === 1) {
          await expired.promise;
          throw new KubeError("gone", "too old");
        }
        relisted.resolve();
      }
      await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  } as unknown as KubeApi;
  const elements = new FakeNftElements();
  const plane = new CountingPlane(
    { nft: new FakeNft(), elements, generations: new GenerationTracker(elements), clock: systemClock, log: nullLogger },
    { ...ruleOptions(4), tableName: "kube-proxy" },
  );
  const tracker = new Tracker(4, { node: NODE, nodeIPs: [] });
  const proxy = new FamilyProxy(
    { tracker, plane, log: nullLogger, clock: systemClock },
    { minSyncMs: 0, syncMs: 1000 },
  );
  const clock = new SlowNodeClock();
  const stop = new AbortController();
  const running = [
    proxy.run({ signal: stop.signal }),
    watchInputs(
      api,
      {
        families: [proxy],
        onNode: () => true,
        onListed: () => undefined,
        onKnown: () => proxy.open(),
        onWatch: () => undefined,
        allowExternalIPs: true,
        onEvent: () => undefined,
        log: nullLogger,
        clock,
      },
      { nodeName: NODE.name, signal: stop.signal },
    ),
  ];
  const until = async (condition: () => boolean): Promise<void> => {
    while (!condition()) await clock.advance(100);
  };
  try {
    await until(() => plane.endpoints.length > 0);
    expired.resolve();
    let isRelisted = false;
    void relisted.promise.then(() => {
      isRelisted = true;
    });
    await until(() => isRelisted && !tracker.isDirty && !proxy.isBusy);
    assert.equal(tracker.ports("ns/web")[0]?.endpoints[0]?.address.toString(), "10.1.0.2");
    assert.ok(plane.endpoints.length > 1, "the tables were synced during the relist");
    assert.ok(!plane.endpoints.includes(0), `endpoints in each sync: ${plane.endpoints.join()}`);
  } finally {
    stop.abort();
    await Promise.all(running);
  }
});
