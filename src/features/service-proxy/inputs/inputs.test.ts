/** Whatever objects say: nothing of it ends the program, keeps another object out, or is more than one line. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Deferred } from "#base/async";
import { systemClock } from "#base/clock";
import { IpAddress, type IpFamily } from "#base/ip";
import { type Logger, nullLogger } from "#base/log";
import { lacksHealthPort, nodeView } from "#features/service-health";
import { FakeNft } from "#kernel/nft";
import { FakeNftElements } from "#kernel/nft-elements";
import type { KubeApi, Node } from "#kube/client";
import { EncodingPlane } from "#test/encoding-plane";
import { GenerationTracker } from "../dataplane/index.ts";
import { nodeNetwork } from "../node/index.ts";
import { FamilyProxy } from "../run/index.ts";
import { Tracker } from "../track/index.ts";
import { watchInputs } from "./inputs.ts";
import { serviceWarnings } from "./service-warnings.ts";

const FAMILIES = [4, 6] as const;
const RUNS = process.env["ISTHMUS_SOAK"] === "full" ? 8_000 : 400;
const NODE = "node-a";

const meta = (name: string, namespace?: string): object => ({
  name,
  uid: `uid-${name}`,
  resourceVersion: "1",
  creationTimestamp: "2026-01-01T00:00:00Z",
  ...(namespace === undefined ? {} : { namespace }),
});

/** One of each kind, with every field that is read. */
const SERVICE = {
  metadata: meta("bad", "ns"),
  spec: {
    type: "LoadBalancer",
    clusterIP: "10.96.0.9",
    clusterIPs: ["10.96.0.9", "fd00:96::9"],
    externalIPs: ["192.0.2.9", "2001:db8::9"],
    loadBalancerSourceRanges: ["10.0.0.0/8", "fd00::/8"],
    externalTrafficPolicy: "Local",
    internalTrafficPolicy: "Cluster",
    sessionAffinity: "ClientIP",
    sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 } },
    healthCheckNodePort: 32_000,
    ipFamilies: ["IPv4", "IPv6"],
    ports: [{ name: "http", protocol: "TCP", port: 80, nodePort: 30_080, targetPort: 8080 }],
  },
  status: {
    loadBalancer: { ingress: [{ ip: "203.0.113.9", ipMode: "VIP", ports: [{ port: 80 }] }, { hostname: "x" }] },
  },
};
const SLICE = {
  metadata: {
    ...meta("bad-1", "ns"),
    labels: { "kubernetes.io/service-name": "bad" },
    annotations: { "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z" },
  },
  addressType: "IPv4",
  ports: [{ name: "http", protocol: "TCP", port: 8080 }],
  endpoints: [
    {
      addresses: ["10.0.0.1"],
      conditions: { ready: true, serving: true, terminating: false },
      nodeName: NODE,
      zone: "a",
      targetRef: { kind: "Pod", name: "p" },
      hints: { forZones: [{ name: "a" }], forNodes: [{ name: NODE }] },
    },
  ],
};
const NODE_OBJECT = {
  metadata: { ...meta(NODE), labels: { "topology.kubernetes.io/zone": "a" } },
  spec: {
    podCIDR: "10.0.0.0/24",
    podCIDRs: ["10.0.0.0/24", "fd00::/64"],
    taints: [{ key: "k", effect: "NoSchedule" }],
  },
  status: { addresses: [{ type: "InternalIP", address: "192.0.2.1" }] },
};
const RANGE = { metadata: meta("bad"), spec: { cidrs: ["10.96.0.0/16", "fd00:96::/112"] } };
const BASES = { services: SERVICE, endpointslices: SLICE, nodes: NODE_OBJECT, servicecidrs: RANGE } as const;
type Kind = keyof typeof BASES;

/** Objects that must be served whatever the others contain. */
const GOOD = {
  services: [
    {
      metadata: meta("good", "ns"),
      spec: { clusterIPs: ["10.96.0.1", "fd00:96::1"], ports: [{ port: 443, protocol: "TCP" }] },
    },
  ],
  endpointslices: FAMILIES.map((family) => ({
    metadata: { ...meta(`good-${family}`, "ns"), labels: { "kubernetes.io/service-name": "good" } },
    addressType: `IPv${family}`,
    ports: [{ name: "", port: 8443, protocol: "TCP" }],
    endpoints: [{ addresses: [family === 4 ? "10.0.0.2" : "fd00::2"] }],
  })),
  nodes: [],
  servicecidrs: [{ metadata: meta("good"), spec: { cidrs: ["10.97.0.0/16"] } }],
};

type Path = readonly (string | number)[];

function* pathsOf(value: unknown, path: Path = []): Generator<Path> {
  if (path.length > 0) yield path;
  if (typeof value !== "object" || value === null) return;
  for (const [key, inner] of Object.entries(value))
    yield* pathsOf(inner, [...path, Array.isArray(value) ? Number(key) : key]);
}

const REMOVED = Symbol("removed");

function mutated(base: object, changes: readonly { readonly path: Path; readonly value: unknown }[]): unknown {
  const copy: unknown = structuredClone(base);
  for (const { path, value } of changes) {
    let at = copy as Record<string | number, unknown>;
    for (const key of path.slice(0, -1)) {
      const next = typeof at === "object" && at !== null ? at[key] : undefined;
      if (typeof next !== "object" || next === null) break;
      at = next as Record<string | number, unknown>;
    }
    const last = path.at(-1) ?? "";
    if (value === REMOVED) delete at[last];
    else at[last] = structuredClone(value);
  }
  return copy;
}

const RUBBISH: readonly unknown[] = [
  REMOVED,
  null,
  0,
  -1,
  1,
  1.5,
  65_535,
  65_536,
  1e300,
  "",
  " ",
  "x",
  "\u0000",
  "ü",
  "None",
  "ExternalName",
  "UDP",
  "0.0.0.0",
  "::",
  "10.0.0.1/8",
  "0.0.0.0/0",
  "x".repeat(10_000),
  true,
  false,
  [],
  [null],
  [[]],
  [0],
  [""],
  [{}],
  {},
  { a: null },
  { name: null },
  [{ name: 5 }],
  "__proto__",
  { constructor: 1 },
];

const change = (base: object) =>
  fc.record({ path: fc.constantFrom(...pathsOf(base)), value: fc.oneof(fc.constantFrom(...RUBBISH), fc.jsonValue()) });
const bad = fc
  .constantFrom<Kind>("services", "endpointslices", "nodes", "servicecidrs")
  .chain((kind) =>
    fc
      .array(change(BASES[kind]), { minLength: 1, maxLength: 3 })
      .map((changes) => ({ kind, object: mutated(BASES[kind], changes) })),
  );

/** Lists what it is given, then tells of the rest by a watch. */
function fakeApi(
  lists: Record<Kind, unknown[]>,
  later: readonly { kind: Kind; object: unknown }[],
  told: Deferred,
): KubeApi {
  let waiting = later.length;
  return {
    whenOpen: async () => "open",
    async *listPages(type: { plural: Kind }) {
      const items = lists[type.plural];
      yield {
        items: structuredClone(items),
        resourceVersion: "1",
        continueToken: undefined,
        remainingItemCount: undefined,
      };
    },
    async *watch(type: { plural: Kind }, options: { signal: AbortSignal }) {
      for (const { kind, object } of later) {
        if (kind !== type.plural) continue;
        yield { type: "MODIFIED", object: structuredClone(object) };
        waiting -= 1;
      }
      if (waiting === 0) told.resolve();
      await new Promise((_resolve, reject) =>
        options.signal.addEventListener("abort", () => reject(options.signal.reason)),
      );
    },
  } as unknown as KubeApi;
}

/** Returns true if the client accepts the value as an object. */
function isNamed(object: unknown): boolean {
  const { name, resourceVersion } =
    (object as { metadata?: { name?: unknown; resourceVersion?: unknown } } | null)?.metadata ?? {};
  return typeof name === "string" && typeof resourceVersion === "string";
}

async function outcome(
  first: readonly { kind: Kind; object: unknown }[],
  later: readonly { kind: Kind; object: unknown }[],
) {
  const lists: Record<Kind, unknown[]> = { ...structuredClone(GOOD), nodes: [] };
  for (const { kind, object } of first) if (isNamed(object)) lists[kind].push(object);
  const elements = new FakeNftElements();
  const planes = new Map<IpFamily, EncodingPlane>();
  const lines: string[] = [];
  const events: string[] = [];
  const say = (message: string, fields?: object): void => void lines.push(`${message} ${JSON.stringify(fields)}`);
  const log: Logger = { ...nullLogger, warn: say, error: say };
  const families = FAMILIES.map((family) => {
    const rules = {
      family,
      mark: 0x4000,
      masqueradeAll: false,
      detector: undefined,
      nodePortAddresses: "set",
    } as const;
    const plane = new EncodingPlane(
      {
        nft: new FakeNft(),
        elements,
        generations: new GenerationTracker(elements),
        clock: systemClock,
        log: nullLogger,
      },
      { ...rules, tableName: "t" },
    );
    planes.set(family, plane);
    const tracker = new Tracker(family, { node: { name: NODE, zone: "a" }, nodeIPs: [] });
    return new FamilyProxy({ tracker, plane, log, clock: systemClock }, { minSyncMs: 0, syncMs: 1000 });
  });
  const stop = new AbortController();
  const told = new Deferred();
  const api = fakeApi(
    lists,
    later.filter(({ object }) => isNamed(object)),
    told,
  );
  const running = [
    ...families.map((proxy) => proxy.run({ signal: stop.signal })),
    watchInputs(
      api,
      {
        families,
        onNode: (node: Node | undefined) => {
          if (node !== undefined) {
            nodeView(node);
            nodeNetwork(node, IpAddress.parse("192.0.2.1"));
          }
          return true;
        },
        onListed: () => undefined,
        onKnown: () => {
          for (const proxy of families) proxy.open();
        },
        onService: serviceWarnings({ log, onEvent: () => undefined }, { allowExternalIPs: true, lacksHealthPort }),
        onWatch: () => undefined,
        allowExternalIPs: true,
        onEvent: ({ reason, note }) => events.push(`${reason} ${note}`),
        log,
        clock: systemClock,
      },
      { nodeName: NODE, signal: stop.signal },
    ),
  ];
  const isDone = (): boolean => [...planes.values()].every(({ services }) => services.size > 0);
  const failed = Promise.all(running);
  failed.catch(() => undefined);
  try {
    while (!isDone()) await Promise.race([failed, new Promise((resolve) => setImmediate(resolve))]);
    await Promise.race([failed, told.promise]);
    for (const proxy of families) proxy.request();
    for (let turn = 0; turn < 5; turn += 1)
      await Promise.race([failed, new Promise((resolve) => setImmediate(resolve))]);
  } finally {
    stop.abort();
    await Promise.allSettled(running);
  }
  return { planes, lines, events };
}

test("watchInputs: no content of an object ends it or hides another object; each unreadable one is one line and one Event", async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(bad, { minLength: 1, maxLength: 4 }),
      fc.array(bad, { maxLength: 4 }),
      async (first, later) => {
        const { planes, lines, events } = await outcome(first, later);
        for (const family of FAMILIES) {
          assert.ok(planes.get(family)?.services.has("ns/good/TCP"), "the good Service is there");
          assert.ok(planes.get(family)?.cidrs.includes("10.97.0.0/16") || family === 6);
        }
        const unreadable = lines.filter((line) => line.includes("is malformed and is ignored"));
        assert.equal(unreadable.length, events.filter((event) => event.startsWith("UnreadableObject")).length);
        assert.ok(unreadable.length <= first.length + later.length);
        assert.ok(lines.every((line) => line.length < 1000 && !line.includes("\n")));
      },
    ),
    { numRuns: RUNS },
  );
});

test("watchInputs: an object that the API server's validation would refuse is reported with the path of its fault", async () => {
  const rows: [Kind, Path, unknown, string][] = [
    ["services", ["spec"], null, "spec is missing"],
    ["services", ["spec", "ports"], [null], "spec.ports[0]: null is not an object"],
    [
      "services",
      ["status", "loadBalancer", "ingress"],
      [null],
      "status.loadBalancer.ingress[0]: null is not an object",
    ],
    ["services", ["spec", "clusterIPs"], [5], "spec.clusterIPs[0]: 5 is not a text"],
    ["endpointslices", ["endpoints"], [null], "endpoints[0]: null is not an object"],
    [
      "endpointslices",
      ["endpoints", 0, "hints", "forZones"],
      [null],
      "endpoints[0].hints.forZones[0]: null is not an object",
    ],
    ["endpointslices", ["endpoints", 0, "addresses"], [7], "endpoints[0].addresses[0]: 7 is not a text"],
    ["nodes", ["status", "addresses"], [null], "status.addresses[0]: null is not an object"],
    ["servicecidrs", ["spec", "cidrs"], "10.0.0.0/8", 'spec.cidrs: "10.0.0.0/8" is not a list'],
  ];
  for (const [kind, path, value, fault] of rows) {
    const { events } = await outcome([{ kind, object: mutated(BASES[kind], [{ path, value }]) }], []);
    assert.deepEqual(events, [`UnreadableObject this object is malformed and is ignored: ${fault}`]);
  }
  const { events } = await outcome(
    [{ kind: "services", object: mutated(SERVICE, [{ path: ["status"], value: null }]) }],
    [],
  );
  assert.deepEqual(events, [], "null is absent, as API servers mean it");
});
