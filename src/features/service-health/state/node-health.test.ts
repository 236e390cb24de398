import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import type { IpFamily } from "#base/ip";
import { AUTOSCALER_TAINT, NodeHealth, type NodeHealthOptions, nodeView } from "./index.ts";

const ELIGIBLE = { isDeleting: false, taintKeys: [] };
const TAINTED = { isDeleting: false, taintKeys: [AUTOSCALER_TAINT] };
const START = Date.UTC(2026, 0, 2, 3, 4, 5);

interface Body {
  readonly lastUpdated: string;
  readonly currentTime: string;
  readonly nodeEligible?: boolean;
  readonly healthy: boolean;
  readonly status?: Readonly<Record<string, { readonly lastUpdated: string; readonly healthy: boolean }>>;
  readonly startup?: string;
  readonly pendingSeconds?: Readonly<Record<string, number>>;
  readonly lastError?: Readonly<Record<string, string>>;
  readonly stopping?: boolean;
}

interface Bed {
  readonly clock: FakeClock;
  readonly health: NodeHealth;
}

/** Both families have started; nothing was synced. */
function bed(options: Partial<NodeHealthOptions> = {}): Bed {
  const clock = new FakeClock(START);
  const health = new NodeHealth({ healthTimeoutMs: 60_000, clock, ...options });
  health.started([4, 6]);
  return { clock, health };
}

/** Both families were synced once, and the node is as it should be. */
function readyBed(options: Partial<NodeHealthOptions> = {}): Bed {
  const ready = bed(options);
  ready.health.listed();
  for (const family of [4, 6] as const) sync(ready.health, family);
  ready.health.node(ELIGIBLE);
  return ready;
}

function sync(health: NodeHealth, family: IpFamily): void {
  health.syncing(family);
  health.synced(family);
}

function codes(health: NodeHealth): readonly [healthz: number, livez: number] {
  return [health.healthz().code, health.livez().code];
}

function bodyOf(answer: { readonly body: string }): Body {
  return JSON.parse(answer.body) as Body;
}

test("NodeHealth: both families updated is 200 on both paths, in kube-proxy's shape and order", () => {
  const { clock, health } = readyBed();
  assert.deepEqual(codes(health), [200, 200]);
  const time = new Date(clock.now()).toISOString();
  const status = `"status":{"IPv4":{"lastUpdated":"${time}","healthy":true},"IPv6":{"lastUpdated":"${time}","healthy":true}}`;
  assert.equal(
    health.healthz().body,
    `{"lastUpdated":"${time}","currentTime":"${time}","nodeEligible":true,"healthy":true,${status}}`,
  );
  assert.equal(health.livez().body, `{"lastUpdated":"${time}","currentTime":"${time}","healthy":true,${status}}`);
});

test("NodeHealth: a change of one family that waits past the timeout fails both paths, and the body shows which", async () => {
  const { clock, health } = readyBed({ healthTimeoutMs: 10_000 });
  const syncedAt = new Date(clock.now()).toISOString();
  health.queued(6);
  await clock.advance(25_000);
  assert.deepEqual(codes(health), [503, 503]);
  const body = bodyOf(health.healthz());
  assert.equal(body.healthy, false);
  assert.equal(body.nodeEligible, true);
  assert.equal(body.lastUpdated, syncedAt);
  assert.equal(body.currentTime, new Date(clock.now()).toISOString());
  assert.deepEqual(body.status, {
    IPv4: { lastUpdated: syncedAt, healthy: true },
    IPv6: { lastUpdated: syncedAt, healthy: false },
  });
  assert.deepEqual(body.pendingSeconds, { IPv6: 25 });
  assert.equal(body.startup, "synced");
});

test("NodeHealth: the next sync that succeeds makes it healthy at once", async () => {
  const { clock, health } = readyBed();
  health.queued(4);
  await clock.advance(120_000);
  assert.deepEqual(codes(health), [503, 503]);
  sync(health, 4);
  assert.deepEqual(codes(health), [200, 200]);
  assert.equal(bodyOf(health.healthz()).lastUpdated, new Date(clock.now()).toISOString());
});

test("NodeHealth: an age of exactly the timeout is unhealthy, a millisecond less is not", async () => {
  const { clock, health } = readyBed();
  health.queued(4);
  await clock.advance(59_999);
  assert.deepEqual(codes(health), [200, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 503]);
});

test("NodeHealth: later changes and failed syncs do not lower the age of the oldest change", async () => {
  const { clock, health } = readyBed();
  health.queued(4);
  for (let at = 0; at < 6; at += 1) {
    await clock.advance(10_000);
    health.queued(4);
    health.syncing(4);
    health.failed(4, new Error("nft is stuck"));
  }
  assert.deepEqual(codes(health), [503, 503]);
  assert.deepEqual(bodyOf(health.livez()).lastError, { IPv4: "nft is stuck" });
});

test("NodeHealth: a change that comes during a sync still waits after it", async () => {
  const { clock, health } = readyBed();
  health.queued(4);
  health.syncing(4);
  await clock.advance(30_000);
  health.queued(4);
  await clock.advance(1000);
  health.synced(4);
  assert.deepEqual(codes(health), [200, 200]);
  await clock.advance(58_999);
  assert.deepEqual(codes(health), [200, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 503]);
});

test("NodeHealth: an idle proxy stays healthy for days, with lastUpdated as the current time and the real one for each family", async () => {
  const { clock, health } = readyBed();
  const syncedAt = new Date(clock.now()).toISOString();
  await clock.advance(3 * 86_400_000);
  assert.deepEqual(codes(health), [200, 200]);
  const { lastUpdated, currentTime, status } = bodyOf(health.healthz());
  assert.equal(lastUpdated, currentTime);
  assert.notEqual(lastUpdated, syncedAt);
  assert.equal(status?.["IPv4"]?.lastUpdated, syncedAt);
});

test("NodeHealth: a jump of the wall clock makes no change older", async () => {
  const { clock, health } = readyBed();
  health.queued(4);
  clock.jumpWall(86_400_000);
  await clock.advance(1000);
  assert.deepEqual(codes(health), [200, 200]);
});

test("NodeHealth: the autoscaler's taint fails only /healthz, and healthy stays true", () => {
  const { health } = readyBed();
  const syncedAt = bodyOf(health.healthz()).status?.["IPv4"]?.lastUpdated;
  health.node(TAINTED);
  assert.deepEqual(codes(health), [503, 200]);
  const body = bodyOf(health.healthz());
  assert.equal(body.nodeEligible, false);
  assert.equal(body.healthy, true);
  assert.equal(body.lastUpdated, syncedAt);
  assert.equal("nodeEligible" in bodyOf(health.livez()), false);
});

test("NodeHealth: without the taint the next request is 200, for a node being deleted 503", () => {
  const { health } = readyBed();
  health.node(TAINTED);
  assert.deepEqual(codes(health), [503, 200]);
  health.node(ELIGIBLE);
  assert.deepEqual(codes(health), [200, 200]);
  health.node({ isDeleting: true, taintKeys: [] });
  assert.deepEqual(codes(health), [503, 200]);
});

test("NodeHealth: /livez is the same through all states of the node", () => {
  const { health } = readyBed();
  const views = [ELIGIBLE, TAINTED, { isDeleting: true, taintKeys: [] }, { isDeleting: false, taintKeys: ["other"] }];
  const bodies = views.map((view) => {
    health.node(view);
    return health.livez();
  });
  assert.equal(new Set(bodies.map(({ body }) => body)).size, 1);
  assert.ok(bodies.every(({ code }) => code === 200));
});

test("nodeView: the taint counts with any value and effect; cordon, other taints, conditions and labels do not", () => {
  const { health } = readyBed();
  const metadata = { name: "n", uid: "u", resourceVersion: "1" };
  const rows: [object, number][] = [
    [{ metadata, spec: { taints: [{ key: AUTOSCALER_TAINT, effect: "NoSchedule" }] } }, 503],
    [{ metadata, spec: { taints: [{ key: AUTOSCALER_TAINT, value: "1700000000", effect: "NoExecute" }] } }, 503],
    [{ metadata, spec: { taints: [{ key: AUTOSCALER_TAINT, effect: "PreferNoSchedule" }] } }, 503],
    [{ metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } }, 503],
    [{ metadata, spec: { unschedulable: true } }, 200],
    [{ metadata, spec: { taints: [{ key: "node.kubernetes.io/unschedulable", effect: "NoSchedule" }] } }, 200],
    [{ metadata, spec: { taints: [{ key: "node.kubernetes.io/not-ready", effect: "NoExecute" }] } }, 200],
    [
      { metadata, spec: { taints: [{ key: "DeletionCandidateOfClusterAutoscaler", effect: "PreferNoSchedule" }] } },
      200,
    ],
    [{ metadata, status: { conditions: [{ type: "Ready", status: "False" }] } }, 200],
    [{ metadata: { ...metadata, labels: { "node.kubernetes.io/exclude-from-external-load-balancers": "true" } } }, 200],
    [{ metadata, spec: { taints: null } }, 200],
    [{ metadata }, 200],
  ];
  for (const [node, code] of rows) {
    health.node(nodeView(node as Parameters<typeof nodeView>[0]));
    assert.deepEqual(codes(health), [code, 200], JSON.stringify(node));
  }
});

test("NodeHealth: configured taint keys replace the default", () => {
  const { health } = readyBed({ drainingTaintKeys: ["karpenter.sh/disrupted"] });
  health.node(TAINTED);
  assert.deepEqual(codes(health), [200, 200]);
  health.node({ isDeleting: false, taintKeys: ["karpenter.sh/disrupted"] });
  assert.deepEqual(codes(health), [503, 200]);
});

test("NodeHealth: with the gate off /healthz ignores the Node, has no nodeEligible, and passes for an unknown node", () => {
  const { health } = bed({ drainsTerminatingNodes: false });
  health.listed();
  for (const family of [4, 6] as const) sync(health, family);
  assert.deepEqual(codes(health), [200, 200]);
  for (const view of [TAINTED, { isDeleting: true, taintKeys: [] }]) {
    health.node(view);
    assert.deepEqual(codes(health), [200, 200]);
    assert.equal(health.healthz().body, health.livez().body);
  }
});

test("NodeHealth: a node that was never seen is not eligible", () => {
  const { health } = bed();
  health.listed();
  for (const family of [4, 6] as const) sync(health, family);
  assert.deepEqual(codes(health), [503, 200]);
  assert.equal(bodyOf(health.healthz()).nodeEligible, false);
});

test("NodeHealth strict: 503 before the first sync of every family, while /livez passes", () => {
  const { health } = bed();
  health.node(ELIGIBLE);
  assert.deepEqual(codes(health), [503, 200]);
  health.listed();
  sync(health, 4);
  assert.deepEqual(codes(health), [503, 200]);
  const body = bodyOf(health.healthz());
  assert.equal(body.startup, "pending");
  assert.deepEqual(body.status?.["IPv6"], { lastUpdated: "0001-01-01T00:00:00Z", healthy: false });
  assert.equal(body.status?.["IPv4"]?.healthy, true);
  sync(health, 6);
  assert.deepEqual(codes(health), [200, 200]);
});

test("NodeHealth strict: before any family has started there is no status, and the zero time", () => {
  const clock = new FakeClock(START);
  const health = new NodeHealth({ healthTimeoutMs: 60_000, clock });
  assert.deepEqual(codes(health), [503, 200]);
  assert.equal(
    health.healthz().body,
    '{"lastUpdated":"0001-01-01T00:00:00Z","currentTime":"2026-01-02T03:04:05.000Z","nodeEligible":false,"healthy":false,"startup":"pending"}',
  );
});

test("NodeHealth strict: a first sync that does not succeed fails /livez a timeout after the start", async () => {
  const { clock, health } = bed();
  await clock.advance(1000);
  health.listed();
  for (const family of [4, 6] as const) {
    health.syncing(family);
    health.failed(family, new Error("no nftables"));
  }
  await clock.advance(58_999);
  assert.deepEqual(codes(health), [503, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 503]);
});

test("NodeHealth strict: /livez passes for as long as the API server was never reached", async () => {
  const { clock, health } = bed();
  await clock.advance(86_400_000);
  assert.deepEqual(codes(health), [503, 200]);
});

test("NodeHealth strict: after an outage longer than the timeout the first sync has the timeout's time", async () => {
  const { clock, health } = bed();
  await clock.advance(600_000);
  health.listed();
  await clock.advance(59_999);
  assert.deepEqual(codes(health), [503, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 503]);
});

test("NodeHealth compatible: both paths pass from the start, but the first sync counts as a change that waits", async () => {
  const { clock, health } = bed({ startup: "compatible" });
  health.node(ELIGIBLE);
  assert.deepEqual(codes(health), [200, 200]);
  assert.equal(bodyOf(health.healthz()).status?.["IPv4"]?.lastUpdated, new Date(START).toISOString());
  health.listed();
  health.syncing(4);
  health.failed(4, new Error("x"));
  await clock.advance(60_000);
  assert.deepEqual(codes(health), [503, 503]);
});

test("NodeHealth adopted: after a restart with complete tables the node is in service as soon as its Node is known", async () => {
  const { clock, health } = bed();
  health.adopted();
  assert.deepEqual(codes(health), [503, 200], "a Node that drains must not come back for a moment");
  assert.equal(bodyOf(health.healthz()).healthy, true);
  health.node(ELIGIBLE);
  assert.deepEqual(codes(health), [200, 200]);
  assert.equal(health.startup, "adopted");
  await clock.advance(45_000);
  health.listed();
  for (const family of [4, 6] as const) {
    assert.deepEqual(codes(health), [200, 200]);
    sync(health, family);
  }
  assert.deepEqual([codes(health), health.startup], [[200, 200], "synced"]);
});

test("NodeHealth adopted: lists that the API server refuses for the timeout end it, and slow ones do not", async () => {
  const { clock, health } = bed();
  health.adopted();
  health.node(ELIGIBLE);
  await clock.advance(600_000);
  assert.deepEqual(codes(health), [200, 200], "the lists take their time");
  health.refused("services", true);
  await clock.advance(30_000);
  health.refused("services", true);
  await clock.advance(29_999);
  assert.deepEqual(codes(health), [200, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 200]);
  assert.equal(health.startup, "pending");
  health.refused("services", false);
  assert.deepEqual(codes(health), [200, 200]);
});

test("NodeHealth adopted: after a restart without the API server the node stays in service, known or not", async () => {
  const { clock, health } = bed();
  health.away();
  assert.deepEqual(codes(health), [503, 200], "no table, no service");
  health.adopted();
  assert.deepEqual(codes(health), [200, 200]);
  assert.equal(health.startup, "adopted");
  await clock.advance(3_600_000);
  assert.deepEqual(codes(health), [200, 200]);
  health.node(TAINTED);
  assert.deepEqual(codes(health), [503, 200]);
  assert.equal(bodyOf(health.healthz()).startup, "adopted");
});

test("NodeHealth adopted: after the lists the first sync has the timeout's time, and then the Node counts", async () => {
  const { clock, health } = bed();
  health.adopted();
  health.away();
  await clock.advance(3_600_000);
  health.listed();
  await clock.advance(59_999);
  assert.deepEqual(codes(health), [200, 200]);
  await clock.advance(1);
  assert.deepEqual(codes(health), [503, 503]);
  for (const family of [4, 6] as const) sync(health, family);
  assert.deepEqual(codes(health), [503, 200]);
  health.node(ELIGIBLE);
  assert.deepEqual(codes(health), [200, 200]);
});

test("NodeHealth adopted: has no effect after the lists, nor in compatible", () => {
  const late = bed();
  late.health.node(ELIGIBLE);
  late.health.listed();
  late.health.adopted();
  assert.deepEqual(codes(late.health), [503, 200]);
  const compatible = bed({ startup: "compatible" });
  compatible.health.adopted();
  compatible.health.away();
  assert.equal(compatible.health.startup, "pending");
  assert.equal(compatible.health.healthz().code, 503);
});

test("NodeHealth: when the program ends /healthz fails and /livez does not", () => {
  const { health } = readyBed();
  health.stopping();
  assert.deepEqual(codes(health), [503, 200]);
  assert.equal(health.isServing, false);
  assert.equal(bodyOf(health.healthz()).stopping, true);
});

test("NodeHealth: an error's text is cut at 256 characters", () => {
  const { health } = readyBed();
  health.failed(4, new Error("x".repeat(10_000)));
  health.node(TAINTED);
  assert.equal(bodyOf(health.healthz()).lastError?.["IPv4"]?.length, 256);
});

type Step = "queue" | "syncing" | "synced" | "failed" | number;

test("NodeHealth: agrees with a model that lists the changes which no successful sync has included", async () => {
  const step = fc.oneof(fc.constantFrom<Step>("queue", "syncing", "synced", "failed"), fc.nat(40_000));
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const { clock, health } = readyBed();
      let waiting: number[] = [];
      let begun: number | undefined;
      for (const one of steps) {
        if (typeof one === "number") await clock.advance(one);
        else if (one === "queue") {
          health.queued(4);
          waiting.push(clock.monotonic());
        } else if (one === "syncing" && begun === undefined) {
          health.syncing(4);
          begun = waiting.length;
        } else if (one === "synced" && begun !== undefined) {
          health.synced(4);
          waiting = waiting.slice(begun);
          begun = undefined;
        } else if (one === "failed" && begun !== undefined) {
          health.failed(4, new Error("x"));
          begun = undefined;
        }
        const oldest = waiting[0];
        const expected = oldest === undefined || clock.monotonic() - oldest < 60_000 ? 200 : 503;
        assert.deepEqual(codes(health), [expected, expected]);
        assert.doesNotThrow(() => JSON.parse(health.healthz().body));
      }
    }),
    { numRuns: 60 },
  );
});
