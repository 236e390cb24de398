import assert from "node:assert/strict";
import { test } from "node:test";
import { Deferred } from "#base/async";
import { systemClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { IpAddress } from "#base/ip";
import { createLogger } from "#base/log";
import { type CniArgs, decodeAddResponse, EMPTY_CNI_ARGS, encodeCniArgs, encodeGcArgs } from "#wire/cnirpc";
import { type CniDeps, CniFailure, CniService, type FoundPod } from "./index.ts";

class NetworkError extends ExpectedError<"failed"> {
  override readonly name = "NetworkError";
}

const POD = { namespace: "ns", name: "pod", uid: "uid-1" };
const K8S = { K8S_POD_NAMESPACE: "ns", K8S_POD_NAME: "pod" };
const ARGS: CniArgs = { ...EMPTY_CNI_ARGS, containerId: "c1", netns: "/run/netns/x", ifname: "eth0", args: K8S };
const RESULT = {
  interfaces: [{ name: "eth0", sandbox: "/run/netns/x" }],
  ips: [{ address: "10.0.0.1/32", interface: 0 }],
};

/** A service on fakes, the calls that they saw, and the log. */
function open(changes: Partial<Omit<CniDeps, "network">> & { readonly network?: Partial<CniDeps["network"]> } = {}) {
  const seen: string[] = [];
  const lines: string[] = [];
  const service = new CniService({
    nodeName: "n1",
    findPod: async () => POD,
    poolOf: async () => "default",
    ready: async () => undefined,
    allocate: async (pool, { containerId }) => {
      seen.push(`allocate ${pool} ${containerId}`);
      return { pool, ipv4: IpAddress.parse("10.0.0.1"), ipv6: undefined, fresh: true };
    },
    settle: () => undefined,
    status: () => undefined,
    oneSandboxPerPod: false,
    free: ({ containerId, ifname }) => void seen.push(`free ${containerId} ${ifname}`),
    log: createLogger({ name: "cni", write: (line) => lines.push(line) }),
    clock: systemClock,
    ...changes,
    network: {
      setUp: async ({ attachment, addresses }) => {
        seen.push(`setUp ${attachment.containerId} ${addresses.ipv4}`);
        return RESULT;
      },
      tearDown: async ({ containerId }) => void seen.push(`tearDown ${containerId}`),
      ofNetwork: () => [],
      check: async ({ expected }) => void seen.push(`check ${expected?.ips[0]?.address}`),
      ...changes.network,
    },
  });
  const call = async (
    method: "Add" | "Del" | "Check",
    args: Partial<CniArgs> = {},
    signal = new AbortController().signal,
  ): Promise<Uint8Array> => {
    const handler = service.handlers[`/pkg.cnirpc.CNI/${method}`];
    assert.ok(handler !== undefined);
    return handler(encodeCniArgs({ ...ARGS, ...args }), { signal });
  };
  /** STATUS or GC. */
  const ask = async (method: "Status" | "GC", request: Uint8Array): Promise<Uint8Array> => {
    const handler = service.handlers[`/pkg.cnirpc.CNI/${method}`];
    assert.ok(handler !== undefined);
    return handler(request, { signal: new AbortController().signal });
  };
  return { call, ask, seen, logged: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

/** A service of a coild without address management. */
function openChained({ clients, pod = POD }: Pick<CniDeps, "clients"> & { readonly pod?: FoundPod } = {}) {
  const seen: string[] = [];
  let owner: string | undefined;
  const service = new CniService({
    nodeName: "n1",
    clients,
    findPod: async () => {
      seen.push("findPod");
      return pod;
    },
    status: () => undefined,
    oneSandboxPerPod: false,
    log: createLogger({ name: "cni", write: () => undefined }),
    clock: systemClock,
    chained: {
      adopt: async ({ pod, netns, ifname, ipv4, ipv6 }) => {
        seen.push(`adopt ${pod.uid} ${netns} ${ifname} ${ipv4} ${ipv6}`);
        owner = pod.uid;
      },
      ownerOf: async () => owner,
      check: async ({ pod }, expected) => void seen.push(`check ${pod.uid} ${expected.ips.length}`),
    },
  });
  const call = (method: string, request: Uint8Array): Promise<Uint8Array> => {
    const handler = service.handlers[`/pkg.cnirpc.CNI/${method}`];
    assert.ok(handler !== undefined);
    return handler(request, { signal: new AbortController().signal });
  };
  const request = (prevResult: object | undefined, args: Record<string, string> = K8S): Uint8Array => {
    const config = { cniVersion: "1.0.0", name: "net", type: "coil", prevResult };
    return encodeCniArgs({ ...ARGS, args, stdinData: new TextEncoder().encode(JSON.stringify(config)) });
  };
  return { seen, call, request };
}

test("ADD refuses a Pod that is bound to another Node, and takes nothing for it", async () => {
  const ofOther = { ...POD, nodeName: "n2" };
  const { call, seen } = open({ findPod: async () => ofOther });
  const refused = { code: "unknown-pod", message: /ns\/pod is bound to node n2; this coild is of node n1/ };
  await assert.rejects(call("Add"), refused);
  assert.deepEqual(seen, []);
  await call("Del");
  assert.deepEqual(seen, ["tearDown c1", "free c1 eth0"]);
  const own = open({ findPod: async () => ({ ...POD, nodeName: "n1" }) });
  await own.call("Add");
  assert.ok(own.seen.includes("setUp c1 10.0.0.1"));
  const chained = openChained({ pod: ofOther });
  await assert.rejects(chained.call("Add", chained.request(PREV_RESULT)), refused);
  assert.deepEqual(chained.seen, ["findPod"]);
});

const PREV_RESULT = {
  cniVersion: "1.0.0",
  interfaces: [{ name: "veth1" }, { name: "eth0", sandbox: "/run/netns/x" }],
  ips: [
    { address: "10.7.0.2/24", interface: 1 },
    { address: "10.7.0.3/24", interface: 1 },
    { address: "fd07::2/64", interface: 1 },
  ],
};

test("CniService: behind another plugin ADD marks the pod's interface with the first address of each family and returns prevResult", async () => {
  const { seen, call, request } = openChained();
  const reply = decodeAddResponse(await call("Add", request(PREV_RESULT)));
  assert.deepEqual(seen, ["findPod", "adopt uid-1 /run/netns/x eth0 10.7.0.2 fd07::2"]);
  assert.deepEqual(JSON.parse(new TextDecoder().decode(reply)), { ...PREV_RESULT, cniVersion: "1.1.0", dns: {} });
});

test("CniService: behind another plugin the NAT client is made after the link is marked, with the addresses of prevResult", async () => {
  const made: string[] = [];
  const setUp: NonNullable<CniDeps["clients"]>["setUp"] = async ({ pod, netns, ifname, ipv4, ipv6 }) => {
    made.push(`${seen.length} ${pod.uid} ${netns} ${ifname} ${ipv4} ${ipv6}`);
  };
  const { seen, call, request } = openChained({ clients: { setUp, check: async () => undefined } });
  await call("Add", request(PREV_RESULT));
  assert.deepEqual(made, ["2 uid-1 /run/netns/x eth0 10.7.0.2 fd07::2"]);
});

test("CniService: behind another plugin a missing prevResult, one without addresses and a wrong address are refused with 7", async () => {
  const { seen, call, request } = openChained();
  for (const [prevResult, text] of [
    [undefined, "--enable-ipam=false"],
    [{ cniVersion: "1.0.0" }, "no ips"],
    [{ cniVersion: "1.0.0", ips: [{ address: "nonsense" }] }, '"nonsense" of ips'],
  ] as const) {
    await assert.rejects(call("Add", request(prevResult)), failure(9, 7, text));
  }
  assert.ok(!seen.some((one) => one.startsWith("adopt")));
});

test("CniService: behind another plugin DEL, GC and STATUS need nothing, and CHECK no API server when the runtime says the UID", async () => {
  const { seen, call, request } = openChained();
  await call("Del", request(undefined));
  await call("GC", encodeGcArgs({ network: "net", attachments: [] }));
  await call("Status", request(undefined));
  await call("Check", request(PREV_RESULT, { ...K8S, K8S_POD_UID: "uid-9" }));
  assert.deepEqual(seen, ["check uid-9 3"]);
  await call("Check", request(PREV_RESULT));
  assert.deepEqual(seen, ["check uid-9 3", "findPod", "check uid-1 3"]);
});

test("CniService: behind another plugin a static pod, which the runtime names by its hash, is marked as its mirror, and CHECK looks for that mark", async () => {
  const annotations = { "kubernetes.io/config.hash": "hash", "kubernetes.io/config.mirror": "hash" };
  const { seen, call, request } = openChained({ pod: { ...POD, annotations } });
  const args = { ...K8S, K8S_POD_UID: "hash" };
  await call("Add", request(PREV_RESULT, args));
  await call("Check", request(PREV_RESULT, args));
  assert.deepEqual(seen, ["findPod", "adopt uid-1 /run/netns/x eth0 10.7.0.2 fd07::2", "findPod", "check uid-1 3"]);
  await assert.rejects(call("Check", request(PREV_RESULT, { ...K8S, K8S_POD_UID: "old" })), failure(5, 3, "UID old"));
});

/** Matches the error that a runtime gets: gRPC code, CNI code, and a text in the message. */
function failure(grpc: number, cni: number, text: string | RegExp) {
  return (error: unknown): boolean => {
    assert.ok(error instanceof CniFailure, String(error));
    assert.deepEqual([error.status.code, error.detail.code], [grpc, cni], error.message);
    assert.match(error.message, typeof text === "string" ? new RegExp(text) : text);
    return true;
  };
}

test("CniService: ADD allocates from the namespace's pool, sets up, and answers with a 1.1.0 result", async () => {
  const { call, seen, logged } = open({ poolOf: async ({ namespace }) => `pool-of-${namespace}` });
  const result = JSON.parse(Buffer.from(decodeAddResponse(await call("Add"))).toString()) as object;
  assert.deepEqual(result, { cniVersion: "1.1.0", ...RESULT, dns: {} });
  assert.deepEqual(seen, ["allocate pool-of-ns c1", "setUp c1 10.0.0.1"]);
  const { ts, seconds, ...line } = logged()[0] ?? {};
  assert.deepEqual(line, {
    level: "info",
    logger: "cni",
    method: "Add",
    namespace: "ns",
    pod: "pod",
    netns: "/run/netns/x",
    ifname: "eth0",
    containerID: "c1",
    code: "OK",
    msg: "finished call",
  });
  assert.ok(typeof seconds === "number" && typeof ts === "string");
});

test("CniService: ADD without namespace, name or netns, or with bad ids, is InvalidArgument/4 and touches nothing", async () => {
  const { call, seen } = open();
  await assert.rejects(call("Add", { args: {} }), failure(3, 4, "K8S_POD_NAMESPACE and K8S_POD_NAME"));
  await assert.rejects(call("Add", { args: { K8S_POD_NAMESPACE: "ns" } }), failure(3, 4, "lacks K8S_POD_NAME"));
  await assert.rejects(call("Add", { args: { K8S_POD_NAME: "pod" } }), failure(3, 4, "lacks K8S_POD_NAMESPACE"));
  await assert.rejects(call("Add", { netns: "" }), failure(3, 4, "CNI_NETNS"));
  for (const containerId of ["", "a:b", "-a", "x".repeat(129)])
    await assert.rejects(call("Add", { containerId }), failure(3, 4, "container_id"));
  for (const ifname of ["", "a:b", "a b", "x".repeat(16)])
    await assert.rejects(call("Add", { ifname }), failure(3, 4, "ifname"));
  assert.deepEqual(seen, []);
});

test("CniService: ADD for a pod that is absent or another one is NotFound/3", async () => {
  const absent = open({ findPod: async () => undefined });
  await assert.rejects(absent.call("Add"), failure(5, 3, "pod ns/pod does not exist"));
  const { call, seen } = open();
  await assert.rejects(
    call("Add", { args: { ...K8S, K8S_POD_UID: "old" } }),
    failure(5, 3, /UID uid-1; .*earlier pod of that name, with UID old/),
  );
  assert.deepEqual(seen, []);
  await call("Add", { args: { ...K8S, K8S_POD_UID: "uid-1" } });
});

test("CniService: ADD for a static pod, which the runtime names by its hash, is for its mirror", async () => {
  const annotations = { "kubernetes.io/config.hash": "old", "kubernetes.io/config.mirror": "old" };
  const clients: string[] = [];
  const { call, seen } = open({
    findPod: async () => ({ ...POD, annotations }),
    clients: {
      setUp: async ({ pod }) => void clients.push(`add ${pod.uid}`),
      check: async ({ uid }) => void clients.push(`check ${uid}`),
    },
  });
  await call("Add", { args: { ...K8S, K8S_POD_UID: "old" } });
  assert.deepEqual([seen, clients], [["allocate default c1", "setUp c1 10.0.0.1"], ["add uid-1"]]);
  await assert.rejects(call("Add", { args: { ...K8S, K8S_POD_UID: "older" } }), failure(5, 3, "with UID older"));
});

test("CniService: a chained ADD is refused with 7", async () => {
  const { call, seen } = open();
  await assert.rejects(call("Add", { args: { ...K8S, IS_CHAINED: "true" } }), failure(9, 7, "first plugin"));
  assert.deepEqual(seen, []);
});

test("CniService: a failed set-up is undone and its address freed, in this order", async () => {
  const { call, seen, logged } = open({
    network: {
      setUp: async () => {
        throw new NetworkError("failed", "no veth");
      },
    },
  });
  await assert.rejects(call("Add"), failure(13, 999, "no veth"));
  assert.deepEqual(seen, ["allocate default c1", "tearDown c1", "free c1 eth0"]);
  assert.deepEqual([logged()[0]?.["msg"], logged()[0]?.["code"]], ["failed call", "internal"]);
});

test("CniService: the pod's NAT client is made after its link, with what was read of the pod; if it fails, link and address are undone", async () => {
  const annotations = { "egress.coil.cybozu.com/internet": "nat" };
  for (const fails of [false, true]) {
    const seen: string[] = [];
    const { call, seen: steps } = open({
      findPod: async () => ({ ...POD, annotations }),
      clients: {
        setUp: async ({ pod, netns, ifname, ipv4, ipv6 }) => {
          seen.push(`${steps.join()} ${JSON.stringify(pod.annotations)} ${netns} ${ifname} ${ipv4} ${ipv6}`);
          if (fails) throw new CniFailure("try-again", "Egress internet/nat does not exist");
        },
        check: async ({ namespace, name, uid }) => {
          throw new CniFailure("internal", `${namespace}/${name} ${uid || "of no UID"} lacks its way`);
        },
      },
    });
    if (fails) await assert.rejects(call("Add"), failure(9, 11, "internet/nat"));
    else await call("Add");
    const made = "allocate default c1,setUp c1 10.0.0.1";
    assert.deepEqual(seen, [`${made} ${JSON.stringify(annotations)} /run/netns/x eth0 10.0.0.1 undefined`]);
    assert.equal(steps.join(), fails ? `${made},tearDown c1,free c1 eth0` : made);
    const stdinData = new TextEncoder().encode(JSON.stringify({ cniVersion: "1.0.0", name: "n", type: "coil" }));
    await assert.rejects(call("Check", { stdinData }), failure(13, 999, "lacks its way"));
  }
});

test("CniService: a repeated ADD that fails leaves the attachment that runs, and its address", async () => {
  let fails = false;
  const { call, seen } = open({
    allocate: async (pool) => ({ pool, ipv4: IpAddress.parse("10.0.0.1"), ipv6: undefined, fresh: !fails }),
    network: {
      setUp: async () => {
        if (fails) throw new NetworkError("failed", "the pod already has an interface eth0");
        return RESULT;
      },
    },
  });
  await call("Add");
  fails = true;
  await assert.rejects(call("Add", { netns: "/run/netns/other" }), failure(13, 999, "already has an interface"));
  await assert.rejects(call("Add", { stdinData: new TextEncoder().encode("{") }), failure(9, 7, "not JSON"));
  assert.deepEqual(seen, []);
});

test("CniService: when undoing fails too the address stays taken, and both failures are returned", async () => {
  const { call, seen } = open({
    network: {
      setUp: async () => {
        throw new NetworkError("failed", "no veth");
      },
      tearDown: async () => {
        throw new NetworkError("failed", "still there");
      },
    },
  });
  await assert.rejects(call("Add"), failure(13, 999, /no veth.*still there/));
  assert.deepEqual(seen, ["allocate default c1"]);
});

test("CniService: the failure of an allocation is returned unchanged, and nothing is freed", async () => {
  const { call, seen } = open({
    allocate: async () => {
      throw new CniFailure("try-again", "pool default has no free block");
    },
  });
  await assert.rejects(call("Add"), failure(9, 11, "pool default"));
  assert.deepEqual(seen, []);
});

test("CniService: a bug stays a bug", async () => {
  const { call } = open({
    poolOf: async () => {
      throw new TypeError("a bug");
    },
  });
  await assert.rejects(call("Add"), { name: "TypeError", message: "a bug" });
});

test("CniService: mtu and runtimeConfig.mac of the configuration reach the set-up; wrong ones are refused with 7 before anything is allocated", async () => {
  const given: unknown[] = [];
  const { call, seen } = open({
    network: {
      setUp: async ({ mtuBytes, mac }) => {
        given.push([mtuBytes, mac?.toString()]);
        return RESULT;
      },
    },
  });
  const stdin = (text: string) => ({ stdinData: new TextEncoder().encode(text) });
  await call("Add", stdin('{"mtu":1400,"runtimeConfig":{"mac":"02:00:00:00:00:01"}}'));
  await call("Add", stdin("{}"));
  assert.deepEqual(given, [
    [1400, "02:00:00:00:00:01"],
    [undefined, undefined],
  ]);
  seen.length = 0;
  for (const text of [
    '{"mtu":10}',
    "{",
    '{"runtimeConfig":{"mac":"03:00:00:00:00:01"}}',
    '{"runtimeConfig":{"ips":["10.0.0.9/32"]}}',
  ])
    await assert.rejects(call("Add", stdin(text)), failure(9, 7, "network configuration"));
  assert.deepEqual(seen, []);
});

test("CniService: CHECK gets runtimeConfig.mac, and DEL succeeds whatever the runtime asked for", async () => {
  const macs: unknown[] = [];
  const { call } = open({ network: { check: async ({ mac }) => void macs.push(mac?.toString()) } });
  const stdin = (runtimeConfig: object) => ({
    stdinData: new TextEncoder().encode(
      JSON.stringify({ cniVersion: "1.0.0", name: "net", type: "coil", runtimeConfig }),
    ),
  });
  await call("Check", stdin({ mac: "02:00:00:00:00:01" }));
  await call("Check", stdin({}));
  assert.deepEqual(macs, ["02:00:00:00:00:01", undefined]);
  for (const one of [{ mac: "nonsense" }, { ips: ["10.0.0.9"] }]) await call("Del", stdin(one));
});

test("CniService: DEL removes the link, then frees; it needs neither pod nor netns nor API server", async () => {
  const dead = async (): Promise<never> => assert.fail("asked the API server");
  const { call, seen } = open({ findPod: dead, poolOf: dead, ready: dead });
  assert.equal((await call("Del", { netns: "", args: {} })).length, 0);
  await call("Del", { netns: "", args: {} });
  assert.deepEqual(seen, ["tearDown c1", "free c1 eth0", "tearDown c1", "free c1 eth0"]);
});

test("CniService: DEL whose link cannot be removed fails and keeps the address", async () => {
  const { call, seen } = open({
    network: {
      tearDown: async () => {
        throw new NetworkError("failed", "busy");
      },
    },
  });
  await assert.rejects(call("Del"), failure(13, 999, "busy"));
  assert.deepEqual(seen, []);
});

test("CniService: CHECK hands on the expected result, and its failure names the missing part", async () => {
  const prevResult = { ips: [{ address: "10.0.0.1/32" }] };
  const config = { cniVersion: "1.0.0", name: "net", type: "coil", prevResult };
  const stdinData = new TextEncoder().encode(JSON.stringify(config));
  const good = open();
  assert.equal((await good.call("Check", { stdinData })).length, 0);
  assert.deepEqual(good.seen, ["check 10.0.0.1/32"]);
  await assert.rejects(good.call("Check"), failure(9, 7, "not JSON"));
  const bad = open({
    network: {
      check: async () => {
        throw new NetworkError("failed", "route 10.0.0.1/32 is missing");
      },
    },
  });
  await assert.rejects(bad.call("Check", { stdinData }), failure(13, 999, "route 10.0.0.1/32 is missing"));
});

test("CniService: different containers run side by side, calls of one container one after the other", async () => {
  const gate = new Deferred();
  const order: string[] = [];
  const { call } = open({
    network: {
      setUp: async ({ attachment }) => {
        order.push(`start ${attachment.containerId}`);
        if (attachment.containerId === "slow") await gate.promise;
        order.push(`end ${attachment.containerId}`);
        return RESULT;
      },
      tearDown: async ({ containerId }) => void order.push(`del ${containerId}`),
    },
  });
  const slow = call("Add", { containerId: "slow" });
  const after = call("Del", { containerId: "slow" });
  await Promise.all(["a", "b", "c"].map((containerId) => call("Add", { containerId })));
  assert.deepEqual(
    order.filter((line) => line.includes("slow")),
    ["start slow"],
    "the others are done before it",
  );
  gate.resolve();
  await Promise.all([slow, after]);
  assert.deepEqual(order.slice(-2), ["end slow", "del slow"]);
});

test("CniService: two ADDs of one attachment have one address and run one after the other", async () => {
  let running = 0;
  const { call, seen } = open({
    network: {
      setUp: async () => {
        running += 1;
        assert.equal(running, 1);
        await new Promise((resolve) => setImmediate(resolve));
        running -= 1;
        return RESULT;
      },
    },
  });
  const [first, second] = await Promise.all([call("Add"), call("Add")]);
  assert.deepEqual(first, second);
  assert.deepEqual(seen, ["allocate default c1", "allocate default c1"]);
});

test("CniService: a caller that goes away after the allocation leaves nothing behind", async () => {
  const stop = new AbortController();
  const { call, seen } = open({
    allocate: async (pool) => {
      stop.abort(new DOMException("the caller closed the connection", "AbortError"));
      return { pool, ipv4: IpAddress.parse("10.0.0.1"), ipv6: undefined, fresh: true };
    },
  });
  await assert.rejects(call("Add", {}, stop.signal), failure(9, 11, "closed the connection"));
  assert.deepEqual(seen, ["tearDown c1", "free c1 eth0"]);
});

test("CniService: a caller that aborts while it waits does nothing", async () => {
  const gate = new Deferred();
  const { call, seen } = open({
    network: {
      tearDown: async () => gate.promise,
    },
  });
  const holder = call("Del");
  const stop = new AbortController();
  const waiter = call("Add", {}, stop.signal);
  stop.abort(new DOMException("the caller closed the connection", "AbortError"));
  await assert.rejects(waiter, failure(9, 11, "cancelled"));
  gate.resolve();
  await holder;
  assert.deepEqual(seen, ["free c1 eth0"]);
});

test("CniService: a request that is no CNIArgs is InvalidArgument/4", async () => {
  const service = new CniService({} as CniDeps);
  const handler = service.handlers["/pkg.cnirpc.CNI/Add"];
  await assert.rejects(
    async () => handler?.(Uint8Array.of(0xff), { signal: new AbortController().signal }),
    failure(3, 4, "cannot decode CNIArgs"),
  );
});

test("CniService: STATUS says nothing when all is well, and 50 or 51 when it is not", async () => {
  const status = encodeCniArgs(EMPTY_CNI_ARGS);
  assert.equal((await open().ask("Status", status)).length, 0);
  for (const [kind, code] of [
    ["not-available", 50],
    ["limited-connectivity", 51],
  ] as const) {
    const { ask } = open({ status: () => new CniFailure(kind, "why") });
    await assert.rejects(ask("Status", status), failure(9, code, "why"));
  }
});

test("CniService: GC removes the network's attachments that the runtime does not know, and nothing else", async () => {
  const attachments = ["a", "b", "c"].map((containerId) => ({ containerId, ifname: "eth0" }));
  const asked: string[] = [];
  const ofNetwork = (network: string) => {
    asked.push(network);
    return attachments;
  };
  const { ask, seen } = open({ network: { ofNetwork } });
  const valid = [
    { containerId: "b", ifname: "eth0" },
    { containerId: "c", ifname: "eth1" },
  ];
  assert.equal((await ask("GC", encodeGcArgs({ network: "net", attachments: valid }))).length, 0);
  assert.deepEqual(asked, ["net"]);
  assert.deepEqual(seen, ["tearDown a", "free a eth0", "tearDown c", "free c eth0"]);
  await assert.rejects(ask("GC", encodeGcArgs({ network: "", attachments: [] })), failure(3, 4, "name of a network"));
  await assert.rejects(ask("GC", Uint8Array.of(0xff)), failure(3, 4, "cannot decode GCArgs"));
});

test("CniService: GC goes on after a failed removal, keeps that address, and returns all failures together", async () => {
  const attachments = ["a", "b", "c"].map((containerId) => ({ containerId, ifname: "eth0" }));
  const freed: string[] = [];
  const { ask } = open({
    free: ({ containerId }) => void freed.push(containerId),
    network: {
      ofNetwork: () => attachments,
      tearDown: async ({ containerId }) => {
        if (containerId !== "b") throw new NetworkError("failed", `${containerId} is busy`);
      },
    },
  });
  await assert.rejects(
    ask("GC", encodeGcArgs({ network: "net", attachments: [] })),
    failure(13, 999, /a is busy; c is busy/),
  );
  assert.deepEqual(freed, ["b"]);
});

test("CniService: where sandboxes of a pod replace each other, calls for one pod run one after the other", async () => {
  for (const oneSandboxPerPod of [true, false]) {
    let running = 0;
    let most = 0;
    const { call } = open({
      oneSandboxPerPod,
      network: {
        setUp: async () => {
          running += 1;
          most = Math.max(most, running);
          await new Promise((resolve) => setImmediate(resolve));
          running -= 1;
          return RESULT;
        },
      },
    });
    await Promise.all(["a", "b", "c"].map((containerId) => call("Add", { containerId })));
    assert.equal(most, oneSandboxPerPod ? 1 : 3);
  }
});

test("CniService: every ADD that got addresses is settled, however it ends", async () => {
  const settled: string[] = [];
  let fails = false;
  const { call } = open({
    settle: ({ containerId }) => void settled.push(containerId),
    network: {
      setUp: async () => {
        if (fails) throw new NetworkError("failed", "no veth");
        return RESULT;
      },
    },
  });
  await call("Add");
  fails = true;
  await assert.rejects(call("Add", { containerId: "c2" }));
  assert.deepEqual(settled, ["c1", "c2"]);
});
