import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import fc from "fast-check";
import { FakeClock } from "#base/clock";
import { ExpectedError } from "#base/errors";
import { createLogger, nullLogger } from "#base/log";
import type { NicClaim, NicStatus } from "#kube/nic";
import {
  CNI_SERVICE,
  CniRpcError,
  decodeAddResponse,
  decodeCniArgs,
  decodeCniError,
  EMPTY_CNI_ARGS,
  encodeCniArgs,
  encodeGcArgs,
} from "#wire/cnirpc";
import { ClaimFileError, parseClaim } from "./claim-files.ts";
import { active, plumbable } from "./gates.ts";
import {
  ClaimBook,
  ClaimFiles,
  LostDevices,
  NicCallError,
  NicService,
  operatorSettings,
  parseAllowed,
  plannedReport,
} from "./index.ts";
import { type PluggedNic, planChanges } from "./plan-changes.ts";
import { parseNicCall } from "./request.ts";

const folder = mkdtempSync(join(tmpdir(), "isthmus-nic-agent-"));
after(() => rmSync(folder, { recursive: true }));
const UID = "0a64ecb8-6f54-4d0f-9e42-7c8d7f8c3a10";
const PLACE = { nodeName: "node1" };
const NETWORKS = [
  { type: "vpc-neutron", awaitsActive: true, hasSwitch: true },
  { type: "vpc-alcor", awaitsActive: false, hasSwitch: false },
];
const TYPES = NETWORKS.map(({ type }) => type);
const OPERATOR = operatorSettings(
  {
    ovsdb: "/var/run/openvswitch/db.sock",
    integrationBridge: "br-int",
    plugMode: "auto",
    vmOwnerUid: 0,
    nsPrefix: "vpc-ns",
  },
  ["integrationBridge=br-second", "vmOwnerUid=107"],
);

function nic(init: Partial<NicStatus> = {}): NicStatus {
  return { name: "eth0", state: "InProgress", portID: "p0", host: "node1", vifType: "ovs", ...init };
}

let versions = 0;
function claimOf(nics: readonly NicStatus[] | undefined, init: Partial<NicClaim["status"]> = {}, uid = UID): NicClaim {
  versions += 1;
  return {
    metadata: { name: uid, namespace: "default", uid: "u", resourceVersion: String(versions), generation: 1 },
    spec: { podName: "p", podUID: uid, vpc: "vpc-1", provider: "n", nics: [{ name: "eth0" }] },
    ...(nics === undefined ? {} : { status: { nics: [...nics], nodeName: "node1", ...init } }),
  };
}

/** A failure of the network that has a code for the runtime. */
class Broken extends ExpectedError<"broken"> {}

interface Plan {
  readonly containerId: string;
  readonly podUid: string;
  readonly network: string;
  readonly primary?: string | undefined;
  readonly ifname?: string;
  readonly isSecondary?: boolean;
  readonly nics: readonly PluggedNic[];
}

function openBed(t: TestContext, { files = new ClaimFiles(mkdtempSync(join(folder, "claims-"))) } = {}) {
  /** Pods whose claims are set aside. */
  const aside = new Set<string>();
  const clock = new FakeClock();
  const claims = new ClaimBook({ files, log: nullLogger, clock });
  const plans = new Map<string, Plan>();
  const log: string[] = [];
  const lines: string[] = [];
  const live = new Map<string, NicClaim>();
  const pods = new Map<string, { uid: string; annotations: Record<string, string> }>();
  let failure: Error | undefined;
  const service = new NicService<Plan>({
    claims,
    readPod: async (namespace, name) => pods.get(`${namespace}/${name}`),
    readClaim: async (_namespace, uid) => live.get(uid),
    handOver: (text) => {
      if (text.includes("NICs=bad")) throw new Broken("broken", "NICs are none");
      return text.includes("NICs=p0")
        ? { nics: [{ portID: "p0" }] }
        : text.includes("NICs=p9")
          ? { nics: [{ portID: "p9" }] }
          : undefined;
    },
    networks: NETWORKS,
    describe: (nics) => nics.map(({ name, state }) => `${name}=${state}`).join(", "),
    plan: ({ claim, call, primaryName, isSecondary }) => ({
      containerId: call.containerId,
      podUid: claim.spec.podUID,
      network: call.config.name,
      primary: primaryName,
      isSecondary,
      ifname: call.ifname,
      nics: claim.spec.nics.map(({ name }, index) => ({ name, index, portId: `p${index}` })),
    }),
    planAdded: ({ nics }, _claim, { name, portID = "" }) =>
      name === "odd" ? "it is odd" : { name, portId: portID, index: nics.length },
    resultOf: (plan) => ({ interfaces: [{ name: plan.primary ?? "eth0" }], ips: [] }),
    network: {
      setUp: async (plan) => {
        log.push(`set up ${plan.containerId}`);
        if (failure !== undefined) throw failure;
        plans.set(plan.containerId, plan);
        return plan;
      },
      tearDown: async (containerId, { scan, ifname }) => {
        log.push(`tear down ${containerId}${ifname === undefined || ifname === "eth0" ? "" : ` ${ifname}`}`);
        if (scan !== undefined) log.push(`scan ${scan.bridge}`);
        if (failure !== undefined) throw failure;
        const plan = plans.get(containerId);
        plans.delete(containerId);
        return { found: plan !== undefined, podUid: plan?.podUid, lost: [] };
      },
      check: async (containerId, _netns, { ifname }) => {
        const plan = plans.get(containerId);
        if (plan === undefined) return undefined;
        if (plan.ifname !== ifname) return [`made as ${plan.ifname}`];
        return containerId === "odd" ? ["eth0 is down", "no port"] : [];
      },
      plug: async (containerId, nic) => {
        log.push(`plug ${nic.name}`);
        if (failure !== undefined) throw failure;
        const plan = plans.get(containerId);
        if (plan === undefined) return undefined;
        plans.set(containerId, { ...plan, nics: [...plan.nics, nic] });
        return nic;
      },
      unplug: async (containerId, portId) => {
        log.push(`unplug ${portId}`);
        if (failure !== undefined) throw failure;
        const plan = plans.get(containerId);
        if (plan !== undefined)
          plans.set(containerId, { ...plan, nics: plan.nics.filter((one) => one.portId !== portId) });
        return false;
      },
      announce: ({ containerId }) => void log.push(`announce ${containerId}`),
      plans: () => [...plans.values()],
    },
    operator: OPERATOR,
    kindOf: (error) => (error instanceof Broken ? "no-bridge" : undefined),
    onPlugged: (uid) => void log.push(`plugged ${uid === UID ? service.stateOf(uid).isPlugged : uid}`),
    onNews: (_claim, { reason, note }) => void log.push(`${reason} ${note}`),
    onFailed: (_claim, why) => void log.push(`failed ${why}`),
    onStep: () => undefined,
    passOf: async ({ metadata }, work) => (aside.has(metadata.name) ? undefined : await work()),
    place: PLACE,
    clock,
    log: createLogger({ name: "nic-agent", write: (line) => void lines.push(line) }),
  });
  const logged = (): readonly Record<string, unknown>[] =>
    lines.map((line) => JSON.parse(line) as Record<string, unknown>);
  const fail = (error: Error | undefined): void => {
    failure = error;
  };
  const call = (method: string, init: CallInit = {}) => {
    const handler = service.handlers[`/${CNI_SERVICE}/${method}`];
    assert.ok(handler !== undefined);
    return handler(requestOf(init), { signal: init.signal ?? t.signal });
  };
  return { clock, claims, service, log, logged, live, pods, call, fail, plans, aside };
}

interface CallInit {
  readonly containerId?: string;
  readonly ifname?: string;
  readonly args?: Readonly<Record<string, string>>;
  readonly config?: object;
  readonly signal?: AbortSignal;
}

function requestOf({ containerId = "c1", ifname = "eth0", args, config = {} }: CallInit): Uint8Array {
  const stdin = { cniVersion: "1.0.0", name: "vpc", type: "vpc-neutron", ...config };
  return encodeCniArgs({
    ...EMPTY_CNI_ARGS,
    containerId,
    netns: "/run/netns/s",
    ifname,
    args: args ?? { K8S_POD_UID: UID, K8S_POD_NAMESPACE: "default", K8S_POD_NAME: "p" },
    stdinData: new TextEncoder().encode(JSON.stringify(stdin)),
  });
}

/** The code and text that the runtime gets. */
async function refusal(work: Promise<unknown>): Promise<readonly [code: number, message: string]> {
  try {
    await work;
  } catch (error) {
    assert.ok(error instanceof NicCallError, String(error));
    const detail = error.status.details[0];
    assert.ok(detail !== undefined);
    const { code, msg } = decodeCniError(detail.value);
    return [code, msg];
  }
  return assert.fail("the call has succeeded");
}

const soon = (): Promise<void> => new Promise(setImmediate);

test("gates: a port is plumbable when it is known, bound and on this node; active when the provider says so", () => {
  const states = (nics: readonly NicStatus[] | undefined, init: Partial<NicClaim["status"]> = {}) =>
    [plumbable(claimOf(nics, init), PLACE).state, active(claimOf(nics, init), new Set(["eth0"])).state].join();
  assert.equal(states(undefined), "waiting,waiting");
  assert.equal(states([nic()]), "open,waiting");
  assert.equal(states([nic({ state: "Ready" })]), "open,open");
  for (const one of [
    { portID: undefined },
    { host: "" },
    { host: undefined },
    { vifType: "unbound" },
    { vifType: "binding_failed" },
    { vifType: undefined },
    { vifType: "vhostuser" },
    { state: "Failed", reason: "IpInUse" },
  ] as const)
    assert.equal(states([{ ...nic(), ...one } as NicStatus]), "waiting,waiting", JSON.stringify(one));
  assert.equal(states([nic()], { nodeName: "other" }), "waiting,waiting");
  assert.equal(states([nic({ state: "Failed", reason: "IpIsGateway" })]), "failed,failed");
  const { vifType: _gone, ...alcor } = nic({ vethName: "veth1", netns: "/run/netns/v" });
  assert.equal(states([alcor]), "open,waiting");
  const { netns: _none, ...half } = alcor;
  assert.equal(states([half]), "waiting,waiting");
  const bound = claimOf([nic()]);
  const deleted = { ...bound, metadata: { ...bound.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
  assert.equal(plumbable(deleted, PLACE).state, "waiting");
});

test("ADD: waits for the claim, plugs once it is plumbable, reports, waits until it is active, and announces", async (t) => {
  const bed = openBed(t);
  bed.live.set(UID, claimOf(undefined));
  const adding = bed.call("Add");
  await soon();
  bed.claims.set(claimOf([nic({ vifType: "unbound" })]));
  await soon();
  assert.deepEqual(bed.log, []);
  bed.claims.set(claimOf([nic()]));
  await soon();
  assert.deepEqual(bed.log, ["set up c1", "plugged true"]);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  const result = JSON.parse(new TextDecoder().decode(decodeAddResponse(await adding))) as {
    readonly interfaces: object;
  };
  assert.deepEqual([result.interfaces, bed.log.at(-1)], [[{ name: "eth0" }], "announce c1"]);
});

test("T-31, T-32: the waits end with code 11 and say for what; an ADD whose port stays inactive is undone, unless that is allowed", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ vifType: "binding_failed" })]));
  const unbound = refusal(bed.call("Add"));
  await soon();
  bed.clock.advance(30_000);
  assert.deepEqual(await unbound, [11, "waiting for ports: eth0=InProgress"]);
  bed.claims.set(claimOf([nic()]));
  const inactive = refusal(bed.call("Add", { config: { activeTimeoutMs: 2000 } }));
  await soon();
  bed.clock.advance(2000);
  assert.deepEqual(await inactive, [
    11,
    "waiting for ports: eth0=InProgress; the node has plugged them: is the provider's agent on node1 running?",
  ]);
  assert.deepEqual(bed.log, ["set up c1", "plugged true", "tear down c1", "plugged false"]);
  const allowed = bed.call("Add", { config: { activeTimeoutMs: 2000, requireActive: false } });
  await soon();
  bed.clock.advance(2000);
  await allowed;
  assert.ok(bed.service.stateOf(UID).isPlugged);
});

test("ADD: what no time heals is 101 at once with an event, before and after plugging; other failures keep their codes", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ state: "Failed", reason: "PortMismatch" })]));
  assert.deepEqual(await refusal(bed.call("Add")), [101, "NICs of the pod failed: eth0=Failed"]);
  assert.deepEqual(bed.log, ["failed eth0=Failed"]);
  bed.claims.set(claimOf([nic()]));
  const adding = refusal(bed.call("Add"));
  await soon();
  bed.claims.set(claimOf([nic({ state: "Failed", reason: "BadRequest" })]));
  assert.equal((await adding)[0], 101);
  assert.ok(bed.log.includes("tear down c1"));
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  bed.fail(new Broken("broken", "no bridge"));
  assert.deepEqual(await refusal(bed.call("Add")), [102, "no bridge"]);
  bed.fail(new AggregateError([new Broken("broken", "one")], "several"));
  assert.equal((await refusal(bed.call("Del")))[0], 999);
  bed.fail(new TypeError("a bug"));
  await assert.rejects(bed.call("Add"), TypeError);
});

test("ADD: a runtime that gives up aborts the waits", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ vifType: "unbound" })]));
  const controller = new AbortController();
  const adding = refusal(bed.call("Add", { signal: controller.signal }));
  await soon();
  controller.abort(new DOMException("the caller closed the connection", "AbortError"));
  assert.deepEqual(await adding, [11, "the call was cancelled: the caller closed the connection"]);
});

test("the pod: without annotations from the runtime and without a claim the pod itself is asked, so none of a VPC gets another network", async (t) => {
  const bed = openBed(t);
  const args = { K8S_POD_NAMESPACE: "default", K8S_POD_NAME: "web", K8S_POD_UID: UID };
  const add = async (): Promise<readonly [number, string]> => {
    const refused = refusal(bed.call("Add", { args, config: { plumbTimeoutMs: 0 } }));
    await soon();
    await bed.clock.advance(1);
    return refused;
  };
  const is = (uid: string, annotations: Record<string, string>): void =>
    void bed.pods.set("default/web", { uid, annotations });
  assert.equal((await add())[0], 104);
  is(UID, { "isthmus.dev/vpc": "vpc-1" });
  assert.deepEqual(await add(), [11, "waiting for ports: the pod has no claim on this node yet"]);
  is(UID, { other: "x" });
  assert.equal((await add())[0], 104);
  is("another", { "isthmus.dev/vpc": "vpc-1" });
  assert.deepEqual(await add(), [11, "pod default/web has been replaced: it has the uid another now"]);
  // The mirror of a static pod has a uid of its own.
  is("another", { "kubernetes.io/config.hash": UID });
  assert.equal((await add())[0], 104);
});

test("the pod: by uid, by ports of a hand-over, or none", async (t) => {
  const bed = openBed(t);
  assert.equal((await refusal(bed.call("Add")))[0], 104);
  assert.equal((await refusal(bed.call("Add", { args: {} })))[0], 104);
  const annotations = { runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "isthmus.dev/vpc": "vpc-1" } } };
  const waiting = refusal(bed.call("Add", { config: annotations }));
  await soon();
  bed.clock.advance(30_000);
  assert.deepEqual(await waiting, [11, "waiting for ports: the pod has no claim on this node yet"]);
  assert.equal((await refusal(bed.call("Add", { args: { NICs: "bad" } })))[0], 4);
  assert.equal((await refusal(bed.call("Add", { args: { NICs: "p0" } })))[0], 11);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  assert.deepEqual(await refusal(bed.call("Add", { args: { NICs: "p9", K8S_POD_UID: UID } })), [
    4,
    "CNI_ARGS has the port p9, which is not one of the pod's claim",
  ]);
  const reply = await bed.call("Add", { args: { NICs: "p0" }, ifname: "net1" });
  assert.match(new TextDecoder().decode(decodeAddResponse(reply)), /"name":"net1"/);
});

test("CNI_IFNAME: behind another plugin's eth0 the primary NIC has its name; CHECK, DEL and GC are by that name too", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  const reply = await bed.call("Add", { ifname: "net1" });
  assert.match(new TextDecoder().decode(decodeAddResponse(reply)), /"name":"net1"/);
  assert.deepEqual([bed.plans.get("c1")?.isSecondary, bed.plans.get("c1")?.ifname], [true, "net1"]);
  await bed.call("Check", { ifname: "net1" });
  assert.deepEqual(await refusal(bed.call("Check", { ifname: "eth0" })), [103, "made as net1"]);
  const gc = bed.service.handlers[`/${CNI_SERVICE}/GC`];
  const gcOf = (ifname: string) =>
    gc?.(encodeGcArgs({ network: "vpc", attachments: [{ containerId: "c1", ifname }] }), { signal: t.signal });
  await gcOf("net1");
  assert.ok(bed.plans.has("c1"));
  await gcOf("eth0");
  assert.ok(!bed.plans.has("c1"), "the runtime does not list the attachment");
  await bed.call("Del", { ifname: "net1" });
  assert.ok(bed.log.includes("tear down c1 net1"));
  // A runtime of virtual machines hands NICs over, and has no other network.
  await bed.call("Add", { ifname: "net1", args: { NICs: "p0" } });
  assert.equal(bed.plans.get("c1")?.isSecondary, false);
  const claim = claimOf([nic({ state: "Ready" }), nic({ name: "net1", portID: "p1", state: "Ready" })]);
  bed.claims.set({ ...claim, spec: { ...claim.spec, nics: [{ name: "eth0" }, { name: "net1" }] } });
  const [code, message] = await refusal(bed.call("Add", { ifname: "net1" }));
  assert.equal(code, 4);
  assert.match(message, /CNI_IFNAME "net1" is the name of another NIC of the pod: .*NETWORK@NAME.* in nics/);
});

test("T-35: DEL of what is known and of what is not; only a pod without any trace of a VPC is 104", async (t) => {
  const bed = openBed(t);
  assert.equal((await refusal(bed.call("Del")))[0], 104);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  await bed.call("Del");
  await bed.call("Add");
  await bed.call("Del");
  assert.deepEqual(bed.log.slice(-3), ["tear down c1", "scan br-int", "plugged false"]);
  bed.claims.remove(UID);
  assert.equal((await refusal(bed.call("Del")))[0], 104);
  const withAnnotations = (annotations: object) => ({
    runtimeConfig: { "io.kubernetes.cri.pod-annotations": annotations },
  });
  await bed.call("Del", { config: withAnnotations({ VPC: "demo" }) });
  // A pod of which the runtime says that it has none does not need a switch.
  bed.log.length = 0;
  assert.equal((await refusal(bed.call("Del", { config: withAnnotations({}) })))[0], 104);
  assert.deepEqual(bed.log, ["tear down c1"]);
});

test("CHECK: differences are 103, an unknown container of a pod with a claim too", async (t) => {
  const bed = openBed(t);
  assert.equal((await refusal(bed.call("Check")))[0], 104);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  assert.equal((await refusal(bed.call("Check")))[0], 103);
  await bed.call("Add", { containerId: "odd" });
  assert.deepEqual(await refusal(bed.call("Check", { containerId: "odd" })), [103, "eth0 is down; no port"]);
});

test("GC removes what the runtime does not list, of its network only", async (t) => {
  const bed = openBed(t);
  for (const [containerId, network] of [
    ["a", "vpc"],
    ["b", "vpc"],
    ["c", "other"],
  ] as const)
    bed.plans.set(containerId, { containerId, nics: [], podUid: UID, network });
  const gc = bed.service.handlers[`/${CNI_SERVICE}/GC`];
  const gcOf = (network: string) =>
    gc?.(encodeGcArgs({ network, attachments: [{ containerId: "a", ifname: "eth0" }] }), { signal: t.signal });
  await gcOf("vpc");
  assert.deepEqual([...bed.plans.keys()], ["a", "c"]);
  bed.fail(new Broken("broken", "no"));
  assert.match((await refusal(Promise.resolve(gcOf("other"))))[1], /GC: no/);
  assert.equal((await refusal(Promise.resolve(gcOf(""))))[0], 4);
});

test("claims are on disk: a restart knows them before the API server answers, and forgets those that are gone once it does", async (t) => {
  const at = mkdtempSync(join(folder, "claims-"));
  const files = new ClaimFiles(at);
  const first = openBed(t, { files });
  first.claims.set(claimOf([nic({ state: "Ready" })]));
  first.claims.set(claimOf([nic()], {}, "0a64ecb8-6f54-4d0f-9e42-000000000000"));
  writeFileSync(join(at, "bad.json"), "{}");
  mkdirSync(join(at, "folder.json"));
  const second = openBed(t, { files });
  assert.equal(second.claims.list().length, 2);
  await second.call("Add");
  second.claims.keepOnly(new Set([UID]));
  assert.deepEqual(readdirSync(at).sort(), [`${UID}.json`, "bad.json", "folder.json"]);
  assert.equal(second.claims.get(UID)?.spec.podName, "p");
  second.claims.remove(UID);
  assert.deepEqual(readdirSync(at).sort(), ["bad.json", "folder.json"]);
});

test("ADD: a configuration may have the agent's own values and those that are allowed; others are refused by name, and a DEL is not", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  const refused = {
    ovsdb: "unix:/tmp/mine.sock",
    integrationBridge: "br-ex",
    plugMode: "direct",
    vmOwnerUid: 1000,
    nsPrefix: "other",
  };
  const [code, text = ""] = await refusal(bed.call("Add", { config: refused }));
  assert.equal(code, 7);
  for (const key of Object.keys(refused)) assert.match(text, new RegExp(`${key}: .* neither .* --allow-configuration`));
  assert.equal(bed.log.length, 0);
  const own = {
    ovsdb: "unix:/run/openvswitch/db.sock",
    integrationBridge: "br-second",
    plugMode: "auto",
    vmOwnerUid: 107,
    nsPrefix: "vpc-ns",
  };
  await bed.call("Add", { config: own });
  await bed.call("Del", { config: own });
  await bed.call("Del", { config: refused });
  assert.deepEqual(
    bed.log.filter((line) => line.startsWith("scan")),
    ["scan br-second", "scan br-int"],
  );
});

test("parseAllowed: KEY=VALUE of the keys that reach beyond a pod, and sockets in one spelling", () => {
  assert.equal(parseAllowed("ovsdb=unix:/var/run/a=b.sock"), "ovsdb=/run/a=b.sock");
  assert.equal(parseAllowed("vmOwnerUid=107"), "vmOwnerUid=107");
  for (const text of ["", "plugMode", "plugMode=", "=x", "vmMode=tap", "PlugMode=auto"])
    assert.equal(parseAllowed(text), undefined, text);
});

test("claims and calls: of any text only our errors escape", () => {
  const good = JSON.parse(JSON.stringify(claimOf([nic()]))) as Record<string, unknown>;
  const broken = fc
    .tuple(fc.constantFrom(...Object.keys(good)), fc.jsonValue())
    .map(([key, value]) => JSON.stringify({ ...good, [key]: value }));
  fc.assert(
    fc.property(fc.oneof(fc.string(), fc.json(), broken), (text) => {
      try {
        plumbable(parseClaim(text, "x.json"), PLACE);
      } catch (error) {
        assert.ok(error instanceof ClaimFileError, String(error));
      }
    }),
  );
  const config = fc
    .tuple(
      fc.constantFrom("plugMode", "plumbTimeoutMs", "ovsdb", "runtimeConfig", "bindBy", "type", "x"),
      fc.jsonValue(),
    )
    .map(([key, value]) => ({ [key]: value }));
  fc.assert(
    fc.property(
      fc.oneof(
        config.map((one) => requestOf({ config: one })),
        fc.uint8Array({ maxLength: 60 }),
      ),
      (bytes) => {
        try {
          parseNicCall(decodeCniArgs(bytes), TYPES);
        } catch (error) {
          assert.ok(error instanceof NicCallError || error instanceof CniRpcError, String(error));
        }
      },
    ),
  );
  assert.throws(
    () =>
      parseNicCall(decodeCniArgs(requestOf({ config: { plugMode: "x", bindBy: "cni", plumbTimeoutMs: -1 } })), TYPES),
    (error) => {
      assert.ok(error instanceof NicCallError);
      for (const key of ["plugMode", "bindBy", "plumbTimeoutMs"]) assert.ok(error.message.includes(key), error.message);
      return true;
    },
  );
});

test("reports: Plugged and Unplugged are written together, once, and their times move with their status", () => {
  const now = Date.parse("2026-01-02T03:04:05.678Z");
  const at = { nodeName: "node1", now };
  const has = { isPlugged: true, lost: undefined, nics: [{ name: "eth0" }] };
  const bare = claimOf([nic()]);
  assert.equal(plannedReport(bare, { isPlugged: false, lost: undefined, nics: [] }, at), undefined);
  const plugged = plannedReport(bare, has, at) ?? assert.fail();
  assert.deepEqual(
    plugged.conditions.map(({ type, status, reason, lastTransitionTime }) => [
      type,
      status,
      reason,
      lastTransitionTime,
    ]),
    [
      ["Plugged", "True", "Plugged", "2026-01-02T03:04:05Z"],
      ["Unplugged", "False", "Plugged", "2026-01-02T03:04:05Z"],
    ],
  );
  assert.deepEqual(plugged.plugged, { generation: 1, nics: [{ name: "eth0" }] });
  const told = claimOf([nic()], statusOf(plugged));
  assert.equal(plannedReport(told, has, { ...at, now: now + 60_000 }), undefined);
  const lost =
    plannedReport(told, { isPlugged: false, lost: { names: ["eth0"], at: now }, nics: [] }, at) ?? assert.fail();
  assert.deepEqual(
    lost.conditions.map(({ status, reason }) => [status, reason]),
    [
      ["False", "DeviceLost"],
      ["True", "DeviceLost"],
    ],
  );
  assert.deepEqual(lost.plugged?.nics, []);
  // After a restart nobody remembers which device was lost; the claim does.
  const after = claimOf([nic()], statusOf(lost));
  assert.equal(plannedReport(after, { isPlugged: false, lost: undefined, nics: [] }, at), undefined);
});

test("reports: each loss of devices is told once with its own time, whatever DELs follow, also if no plug was told before", () => {
  const now = Date.parse("2026-01-02T03:04:05Z");
  const losses = new LostDevices();
  const report = (claim: NicClaim, at: number, isPlugged = false) =>
    plannedReport(claim, { isPlugged, lost: losses.of(UID), nics: [] }, { nodeName: "node1", now: at });
  const told = (of: ReturnType<typeof report>): readonly unknown[] | undefined =>
    of?.conditions.map(({ type, status, reason, lastTransitionTime }) => [type, status, reason, lastTransitionTime]);
  const lostAt = (time: string) => [
    ["Plugged", "False", "DeviceLost", time],
    ["Unplugged", "True", "DeviceLost", time],
  ];
  // The agent has ended between the move of the device and its report; then the node has restarted.
  const bare = claimOf([nic()]);
  losses.note(UID, ["eth0"], { isPlugged: false, now });
  const first = report(bare, now) ?? assert.fail("nothing is told");
  assert.deepEqual(told(first), lostAt("2026-01-02T03:04:05Z"));
  // A DEL that finds nothing, as runtimes repeat it, before the report could be written.
  losses.note(UID, [], { isPlugged: false, now: now + 5000 });
  losses.note(UID, ["eth0"], { isPlugged: false, now: now + 6000 });
  assert.deepEqual(told(report(bare, now + 60_000)), lostAt("2026-01-02T03:04:05Z"));
  const after = claimOf([nic()], statusOf(first));
  assert.equal(report(after, now + 60_000), undefined);
  // The next sandbox is lost too, before its plug was told.
  losses.note(UID, [], { isPlugged: true, now: now + 90_000 });
  losses.note(UID, ["eth0"], { isPlugged: false, now: now + 95_000 });
  assert.deepEqual(told(report(after, now + 96_000)), lostAt("2026-01-02T03:05:40Z"));
  losses.forget(UID);
  assert.equal(losses.of(UID), undefined);
});

test("reports: of a claim that is being deleted it is told that nothing is plugged, unless an ADD is at work", () => {
  const at = { nodeName: "node1", now: Date.parse("2026-01-02T03:04:05Z") };
  const ending = (status: Partial<NicClaim["status"]> = {}): NicClaim => {
    const claim = claimOf([nic()], status);
    return { ...claim, metadata: { ...claim.metadata, deletionTimestamp: "2026-01-02T03:04:00Z" } };
  };
  const nothing = { isPlugged: false, lost: undefined, nics: [] };
  const told = plannedReport(ending(), nothing, at) ?? assert.fail();
  assert.deepEqual(
    told.conditions.map(({ type, status }) => [type, status]),
    [
      ["Plugged", "False"],
      ["Unplugged", "True"],
    ],
  );
  assert.equal(plannedReport(ending(statusOf(told)), nothing, at), undefined, "once");
  assert.equal(plannedReport(ending(), { ...nothing, nics: undefined }, at), undefined);
});

test("ADD: what is told to be unplugged of a claim that is deleted is not plugged afterwards, at whatever moment that is", async (t) => {
  const claim = claimOf([nic({ state: "Ready" })]);
  const ending = { ...claim, metadata: { ...claim.metadata, deletionTimestamp: "2026-01-02T03:04:00Z" } };
  const ends = new Set<string>();
  for (let turns = 0; turns < 40; turns += 1) {
    const { claims, call, log, service, clock } = openBed(t);
    claims.set(claim);
    const done = call("Add").then(
      () => "plugged",
      (error: unknown) => (error instanceof NicCallError ? "refused" : String(error)),
    );
    for (let turn = 0; turn < turns; turn += 1) await Promise.resolve();
    versions += 1;
    claims.set({ ...ending, metadata: { ...ending.metadata, resourceVersion: String(versions) } });
    const { isPlugged, nics } = service.stateOf(UID);
    const shown = nics?.map(({ name }) => ({ name }));
    const told = plannedReport(ending, { isPlugged, lost: undefined, nics: shown }, { nodeName: "node1", now: 0 });
    const isUnplugged = told?.conditions.some(({ type, status }) => type === "Unplugged" && status === "True") === true;
    await soon();
    await clock.advance(30_000);
    const end = await done;
    ends.add(end);
    assert.equal(isUnplugged, end === "refused", `after ${turns} turns: ${log.join(", ")}`);
  }
  assert.deepEqual(ends, new Set(["refused", "plugged"]));
});

function statusOf({ conditions, plugged }: NonNullable<ReturnType<typeof plannedReport>>): Partial<NicClaim["status"]> {
  return { conditions: [...conditions], ...(plugged === undefined ? {} : { plugged }) };
}

test("reports: a NIC that the claim gives up is told to be gone with the claim's generation, also if nothing was plugged", () => {
  const at = { nodeName: "node1", now: 0 };
  const shrunk = (status: Partial<NicClaim["status"]> = {}): NicClaim => {
    const claim = claimOf([nic(), nic({ name: "eth1", portID: "p1" })], status);
    return { ...claim, metadata: { ...claim.metadata, generation: 2 } };
  };
  const report = (claim: NicClaim, nics: readonly string[] | undefined, isPlugged = true) =>
    plannedReport(claim, { isPlugged, lost: undefined, nics: nics?.map((name) => ({ name })) }, at)?.plugged;
  assert.deepEqual(report(shrunk(), [], false), { generation: 2, nics: [] });
  const before = { plugged: { generation: 1, nics: [{ name: "eth0" }, { name: "eth1" }] } };
  // It tells what it has, and the controller waits.
  assert.deepEqual(report(shrunk(before), ["eth0", "eth1"])?.generation, 2);
  assert.deepEqual(report(shrunk(before), ["eth0"]), { generation: 2, nics: [{ name: "eth0" }] });
  // While an ADD is at work nothing new is told.
  assert.deepEqual(report(shrunk(before), undefined), before.plugged);
  const grown = claimOf([nic()], { plugged: { generation: 1, nics: [{ name: "eth0" }] } });
  const told = plannedReport(
    { ...grown, metadata: { ...grown.metadata, generation: 2 } },
    { isPlugged: false, lost: undefined, nics: [{ name: "eth0" }] },
    at,
  );
  assert.equal(told, undefined, "nobody waits for a report of a claim that only grows");
});

test("hot-plug: planChanges: what the claim lacks goes, what is bound here comes; the primary NIC stays", () => {
  const claim = (nics: readonly NicStatus[], names = nics.map(({ name }) => name)): NicClaim => {
    const made = claimOf(nics);
    return { ...made, spec: { ...made.spec, nics: names.map((name) => ({ name })) } };
  };
  const eth1 = nic({ name: "eth1", portID: "p1" });
  const have = (...names: readonly string[]): readonly PluggedNic[] =>
    names.map((name, index) => ({ name, index, portId: `p${name.slice(3)}` }));
  const told = (of: NicClaim, plugged: readonly PluggedNic[]): readonly string[] => {
    const { plug, unplug } = planChanges(of, { nics: plugged, ifname: "net1" }, PLACE);
    return [...unplug.map(({ name }) => `-${name}`), ...plug.map(({ name }) => `+${name}`)];
  };
  const rows: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ["nothing has changed", told(claim([nic(), eth1]), have("eth0", "eth1")), []],
    ["a NIC that is bound here", told(claim([nic(), eth1]), have("eth0")), ["+eth1"]],
    ["one that is not bound yet", told(claim([nic(), { ...eth1, host: "" }]), have("eth0")), []],
    ["one that has failed", told(claim([nic(), { ...eth1, state: "Failed" }]), have("eth0")), []],
    ["a NIC that the claim has given up", told(claim([nic(), eth1], ["eth0"]), have("eth0", "eth1")), ["-eth1"]],
    [
      "the primary NIC under a name of the runtime",
      told(claim([nic()]), [{ name: "net1", index: 0, portId: "p0" }]),
      [],
    ],
    [
      "the primary NIC under a name of the runtime, listed last",
      told(claim([eth1, nic()]), [
        { name: "eth1", index: 0, portId: "p1" },
        { name: "net1", index: 1, portId: "p9" },
      ]),
      [],
    ],
    // The primary NIC is the one of this name, wherever the pod lists it.
    ["a NIC that is listed before the primary one", told(claim([eth1, nic()]), have("eth0")), ["+eth1"]],
    ["one that was listed before it is given up", told(claim([nic()]), have("eth1", "eth0")), ["-eth1"]],
    ["the primary NIC that is listed last", told(claim([eth1, nic()]), have("eth1", "eth0")), []],
    ["another port", told(claim([nic(), { ...eth1, portID: "p9" }]), have("eth0", "eth1")), ["-eth1", "+eth1"]],
    [
      "a NIC that is half made",
      told(
        claim([nic(), eth1]),
        have("eth0", "eth1").map((one) => (one.index === 1 ? { ...one, pending: true } : one)),
      ),
      ["-eth1", "+eth1"],
    ],
    [
      "a NIC whose port is not known any more",
      told(claim([nic(), { name: "eth1", state: "Unknown" }]), have("eth0", "eth1")),
      [],
    ],
  ];
  for (const [what, found, wanted] of rows) assert.deepEqual(found, wanted, what);
  const ending = claim([nic(), eth1]);
  const deleted = { ...ending, metadata: { ...ending.metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } };
  assert.deepEqual(told(deleted, have("eth0")), []);
});

test("hot-plug: follow: NICs come and go with events; a failure is told once, holds up nobody, and is tried again", async (t) => {
  const bed = openBed(t);
  const ready = (name: string, at: number): NicStatus => nic({ name, portID: `p${at}`, state: "Ready" });
  const set = (...nics: readonly NicStatus[]): void => {
    const claim = claimOf(nics);
    bed.claims.set({ ...claim, spec: { ...claim.spec, nics: nics.map(({ name }) => ({ name })) } });
  };
  set(ready("eth0", 0));
  await bed.call("Add");
  assert.equal(await bed.service.follow(t), 0);
  set(ready("eth0", 0), ready("eth1", 1), ready("odd", 2));
  bed.log.length = 0;
  await assert.rejects(bed.service.follow(t), /it is odd/);
  assert.deepEqual(bed.log, [
    "plug eth1",
    "announce c1",
    "NicPlugged eth1: port p1",
    "plugged true",
    "NicFailed odd: it is odd",
  ]);
  bed.log.length = 0;
  await assert.rejects(bed.service.follow(t), /it is odd/);
  assert.deepEqual(bed.log, []);
  assert.deepEqual(
    bed.service.stateOf(UID).nics?.map(({ name }) => name),
    ["eth0", "eth1"],
  );
  set(ready("eth0", 0));
  bed.fail(new Broken("broken", "no switch"));
  await assert.rejects(bed.service.follow(t), { message: /no switch/, code: "no-bridge" });
  bed.fail(undefined);
  bed.log.length = 0;
  assert.equal(await bed.service.follow(t), 1);
  assert.deepEqual(bed.log, ["unplug p1", "NicUnplugged eth1: port p1", "plugged true"]);
});

test("hot-plug: follow: the NICs of a claim that is set aside stay as they are, until it is no more", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic({ state: "Ready" })]));
  await bed.call("Add");
  const grown = claimOf([nic({ state: "Ready" }), nic({ name: "eth1", portID: "p1" })]);
  bed.claims.set({ ...grown, spec: { ...grown.spec, nics: [{ name: "eth0" }, { name: "eth1" }] } });
  bed.aside.add(UID);
  bed.log.length = 0;
  assert.equal(await bed.service.follow(t), 0);
  assert.deepEqual(bed.log, []);
  bed.aside.clear();
  assert.equal(await bed.service.follow(t), 1);
});

test("hot-plug: what the node has is not told while a NIC is half made, and is told again after a failure", async (t) => {
  const bed = openBed(t);
  const [eth0, eth1] = ["eth0", "eth1"].map((name, at) => nic({ name, portID: `p${at}`, state: "Ready" })) as [
    NicStatus,
    NicStatus,
  ];
  const claim = claimOf([eth0, eth1]);
  bed.claims.set(claimOf([eth0]));
  await bed.call("Add");
  const plan = bed.plans.get("c1");
  assert.ok(plan !== undefined);
  bed.plans.set("c1", { ...plan, nics: [...plan.nics, { name: "eth1", index: 1, portId: "p1", pending: true }] });
  assert.deepEqual([bed.service.stateOf(UID).isPlugged, bed.service.stateOf(UID).nics], [true, undefined]);
  bed.plans.set("c1", plan);
  bed.claims.set({ ...claim, spec: { ...claim.spec, nics: [{ name: "eth0" }, { name: "eth1" }] } });
  bed.fail(new Broken("broken", "no switch"));
  bed.log.length = 0;
  await assert.rejects(bed.service.follow(t), /no switch/);
  assert.deepEqual(bed.log, ["plug eth1", "plugged true", "NicFailed eth1: no switch"]);
  assert.deepEqual(
    bed.service.stateOf(UID).nics?.map(({ name }) => name),
    ["eth0"],
  );
});

test("hot-plug: a NIC that comes while an ADD waits for active ports does not hold it up, and is plugged after it", async (t) => {
  const bed = openBed(t);
  bed.claims.set(claimOf([nic()]));
  const adding = bed.call("Add");
  await soon();
  const grown = claimOf([nic({ state: "Ready" }), nic({ name: "eth1", portID: "p1" })]);
  bed.claims.set({ ...grown, spec: { ...grown.spec, nics: [{ name: "eth0" }, { name: "eth1" }] } });
  await adding;
  assert.equal(await bed.service.follow(t), 1);
  assert.deepEqual(
    bed.service.stateOf(UID).nics?.map(({ name }) => name),
    ["eth0", "eth1"],
  );
});

test("a claim that was copied into another namespace changes nothing of the pod's NICs", async (t) => {
  const bed = openBed(t);
  const at = (claim: NicClaim, namespace: string, creationTimestamp: string): NicClaim => ({
    ...claim,
    metadata: { ...claim.metadata, namespace, creationTimestamp },
  });
  const copy = at(claimOf([nic({ portID: "p7" })]), "copies", "2026-02-01T00:00:00Z");
  bed.claims.set(copy);
  const refused = refusal(bed.call("Add", { config: { requireActive: false, plumbTimeoutMs: 1000 } }));
  await soon();
  await bed.clock.advance(1000);
  assert.equal((await refused)[0], 11, "the copy is not for the pod");
  const own = at(claimOf([nic({ state: "Ready" })]), "default", "2026-01-01T00:00:00Z");
  bed.claims.set(own);
  await bed.call("Add");
  const changed = at(claimOf([nic({ portID: "p7" })]), "copies", "2026-02-01T00:00:00Z");
  bed.claims.set({ ...changed, spec: { ...changed.spec, nics: [] } });
  assert.equal(await bed.service.follow({ signal: t.signal }), 0);
  bed.claims.remove(UID, "copies");
  assert.equal(bed.claims.get(UID), own);
  bed.claims.remove(UID, "default");
  assert.equal(bed.claims.get(UID), undefined);
});

test("a pod that names NICs and leaves the VPC to its namespace waits for its claim, and is not one without a VPC", async (t) => {
  const bed = openBed(t);
  const config = (nics: string) => ({
    plumbTimeoutMs: 0,
    runtimeConfig: { "io.kubernetes.cri.pod-annotations": { "isthmus.dev/nics": nics } },
  });
  const add = async (nics: string): Promise<number> => {
    const refused = refusal(bed.call("Add", { config: config(nics) }));
    await soon();
    await bed.clock.advance(1);
    return (await refused)[0];
  };
  assert.deepEqual([await add('[{"name":"eth0"}]'), await add("- subnet: a"), await add("?")], [11, 11, 11]);
  assert.deepEqual([await add(" [ ] "), await add(""), await add("null")], [104, 104, 104]);
});

test("a pod without a VPC, which the executable hands to another plugin, has no line at info; a failed call is a warning", async (t) => {
  const bed = openBed(t);
  assert.equal((await refusal(bed.call("Add")))[0], 104);
  assert.equal((await refusal(bed.call("Add", { args: { NICs: "bad" } })))[0], 4);
  assert.deepEqual(
    bed.logged().map(({ level, msg, code }) => [level, msg, code]),
    [["warn", "failed call", "invalid-arguments"]],
  );
});
