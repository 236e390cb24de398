import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import type { Cidr } from "#base/ip";
import { IpAddress } from "#base/ip";
import { nullLogger } from "#base/log";
import type { KubeApi } from "#kube/client";
import type { EventInput } from "#kube/events";
import { allowedBy, EXTRA_SOURCES_REFUSED, ExtraSources } from "./extra-sources.ts";

const ASK = { "isthmus.dev/extra-sources": "10.9.0.0/24" };
const attachment = { containerId: "aaaa", ifname: "eth0" };
const pod = { namespace: "ns", name: "a", uid: "u1", annotations: ASK };

function bed() {
  const namespaces = new Map<string, string | undefined>();
  const events: EventInput[] = [];
  const set: string[] = [];
  const listed = [
    { ...attachment, pool: "default", ifindex: 7, hostName: "veth7", addresses: [IpAddress.parse("10.1.0.2")] },
    {
      containerId: "bbbb",
      ifname: "eth0",
      pool: "default",
      ifindex: 8,
      hostName: "veth8",
      addresses: [IpAddress.parse("10.1.0.3")],
    },
  ];
  const sources = new ExtraSources({
    network: {
      judgeAll: () => set.push("judge all"),
      list: () => listed,
      setExtraSources: (
        wanted: readonly { readonly attachment: { readonly containerId: string }; readonly extra: readonly Cidr[] }[],
      ) => {
        for (const one of wanted) set.push(`${one.attachment.containerId}: ${one.extra.join()}`);
      },
    },
    namespace: (name) => {
      const allowed = namespaces.get(name);
      if (!namespaces.has(name)) return undefined;
      const annotations = allowed === undefined ? {} : { annotations: { "isthmus.dev/allowed-sources": allowed } };
      return { metadata: { name, uid: name, resourceVersion: "1", ...annotations } };
    },
    onChange: () => undefined,
    events: { record: (event) => events.push(event) },
    log: nullLogger,
    clock: new FakeClock(),
  });
  return { namespaces, events, set, sources };
}

test("ExtraSources: an ADD gets what the Namespace allows; a refusal is one event of the pod", async () => {
  const { events, sources } = bed();
  assert.deepEqual(sources.forAdd(attachment, pod, "10.9.0.0/25").map(String), ["10.9.0.0/25"]);
  sources.forAdd(attachment, pod, "10.9.0.0/25");
  assert.deepEqual(
    events.map(({ reason, regarding }) => [reason, regarding.uid]),
    [[EXTRA_SOURCES_REFUSED, "u1"]],
  );
  assert.match(events[0]?.note ?? "", /Namespace ns .*isthmus.dev\/allowed-sources/);
  assert.deepEqual(sources.forAdd(attachment, { ...pod, annotations: {} }, "any"), []);
  const never = async () => assert.fail("the Namespace of a pod that asks for nothing is not read");
  assert.equal(await allowedBy({ ...pod, annotations: undefined }, never, {}), undefined);
});

test("ExtraSources: a change of the Namespace counts for its running pods alone, until they end", () => {
  const { namespaces, set, sources } = bed();
  sources.forAdd(attachment, pod, undefined);
  sources.noteNamespace("other");
  sources.noteNamespace("ns");
  assert.deepEqual(
    set.filter((one) => one !== ""),
    [],
    "a Namespace that is not known changes nothing",
  );
  namespaces.set("ns", "10.0.0.0/8");
  sources.noteNamespace("ns");
  namespaces.set("ns", undefined);
  sources.noteNamespace("ns");
  assert.deepEqual(set, ["aaaa: 10.9.0.0/24", "aaaa: "]);
  sources.forget(attachment);
  sources.noteNamespace("ns");
  assert.equal(set.length, 2);
});

test("ExtraSources: a start learns what running pods ask for when the API server answers; pods that it does not tell stay as they are", async () => {
  const { namespaces, set, sources } = bed();
  namespaces.set("ns", "any");
  let calls = 0;
  const api: Pick<KubeApi, "listAll"> = {
    listAll: (async () => {
      calls += 1;
      return {
        resourceVersion: "1",
        items: [
          {
            metadata: { name: "a", namespace: "ns", uid: "u1", resourceVersion: "1", annotations: ASK },
            spec: { nodeName: "node1" },
            status: { podIPs: [{ ip: "10.1.0.2" }] },
          },
          {
            metadata: { name: "h", namespace: "ns", uid: "u2", resourceVersion: "1" },
            spec: { nodeName: "node1", hostNetwork: true },
            status: { podIPs: [{ ip: "10.1.0.3" }] },
          },
        ],
      };
    }) as unknown as KubeApi["listAll"],
  };
  await sources.learn({ api, nodeName: "node1" }, { signal: new AbortController().signal });
  assert.deepEqual([calls, set], [1, ["aaaa: 10.9.0.0/24", "judge all"]]);
});

/** An API server with pods of node1, named by their uids. */
function apiOf(
  ...pods: readonly {
    readonly uid: string;
    readonly ip: string;
    readonly phase?: string;
    readonly asks?: boolean;
    readonly nodeName?: string;
  }[]
): Pick<KubeApi, "listAll"> {
  const items = pods.map(({ uid, ip, phase = "Running", asks = false, nodeName = "node1" }) => ({
    metadata: { name: uid, namespace: "ns", uid, resourceVersion: "1", ...(asks ? { annotations: ASK } : {}) },
    spec: { nodeName },
    status: { phase, podIPs: [{ ip }] },
  }));
  return { listAll: (async () => ({ resourceVersion: "1", items })) as unknown as KubeApi["listAll"] };
}

const LEARNED = [
  {
    what: "a finished pod gives the one that has its address now nothing",
    pods: [
      { uid: "job", ip: "10.1.0.2", phase: "Succeeded", asks: true },
      { uid: "now", ip: "10.1.0.2" },
    ],
    set: ["aaaa: "],
  },
  {
    what: "a failed pod takes nothing from the router that has its address now",
    pods: [
      { uid: "now", ip: "10.1.0.2", asks: true },
      { uid: "old", ip: "10.1.0.2", phase: "Failed" },
    ],
    set: ["aaaa: 10.9.0.0/24"],
  },
  {
    what: "of two pods with one address nothing is learned",
    pods: [
      { uid: "one", ip: "10.1.0.2", asks: true },
      { uid: "two", ip: "10.1.0.2" },
    ],
    set: [],
  },
  {
    what: "pods of other nodes say nothing",
    pods: [{ uid: "far", ip: "10.1.0.2", asks: true, nodeName: "node2" }],
    set: [],
  },
];

for (const { what, pods, set: expected } of LEARNED)
  test(`ExtraSources: ${what}`, async () => {
    const { namespaces, set, sources } = bed();
    namespaces.set("ns", "any");
    await sources.learn({ api: apiOf(...pods), nodeName: "node1" }, { signal: new AbortController().signal });
    assert.deepEqual(set, [...expected, "judge all"]);
  });

test("ExtraSources: what an ADD has said counts, not the pod that had the address when the list was made", async () => {
  const { namespaces, set, sources } = bed();
  namespaces.set("ns", "any");
  sources.forAdd(attachment, { ...pod, annotations: {} }, "any");
  const api = apiOf({ uid: "before", ip: "10.1.0.2", asks: true });
  await sources.learn({ api, nodeName: "node1" }, { signal: new AbortController().signal });
  assert.deepEqual(set, ["judge all"]);
});

test("ExtraSources: links that were not guarded before wait until the API server has answered", async () => {
  const { set, sources } = bed();
  const stop = new AbortController();
  const listAll = (async () => {
    stop.abort();
    throw new KubeApiDown();
  }) as unknown as KubeApi["listAll"];
  await assert.rejects(sources.learn({ api: { listAll }, nodeName: "node1" }, { signal: stop.signal }));
  assert.deepEqual(set, []);
});

class KubeApiDown extends ExpectedError<"down"> {
  constructor() {
    super("down", "the API server does not answer");
  }
}
