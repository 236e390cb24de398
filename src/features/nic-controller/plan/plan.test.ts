import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { PROVIDER_REASONS, type VpcPort } from "#cloud/vpc";
import { type NicStatus, tenantText } from "#kube/nic";
import { describeOwner, ownPorts, portIdentity, readOwner, readPortName } from "./identity.ts";
import { BINDING_TRIES, bound, failed, portFault } from "./nic.ts";
import { observeNic } from "./observe.ts";
import { orphansOf } from "./orphans.ts";
import { quotaFault } from "./quota.ts";
import { endsByRelease, OWN_REASONS, retryDelayMs } from "./retry.ts";

const UID = "6f0e1c1a-0000-4000-8000-000000000001";
const OTHER = "6f0e1c1a-0000-4000-8000-000000000002";
const NOW = Date.UTC(2026, 0, 1, 1);

function port(change: Partial<VpcPort> = {}): VpcPort {
  const identity = portIdentity(UID, { cluster: "c1", namespace: "n", pod: "p", nic: "eth0" });
  return {
    ...identity,
    id: "p1",
    networkId: "n1",
    projectId: "",
    status: "DOWN",
    mac: "fa:16:3e:00:00:01",
    addresses: [],
    createdAt: "2026-01-01T00:00:00Z",
    revision: 1,
    securityGroups: [],
    binding: { host: "", vifType: "unbound" },
    ...change,
  };
}

test("identity: name, device and description lead back to pod and NIC, and fit into Neutron's limits", () => {
  const { name, deviceId, description, tags } = portIdentity(UID, {
    cluster: "c1",
    namespace: "n",
    pod: "p",
    nic: "eth0",
  });
  assert.deepEqual(readPortName(name), { podUID: UID, nic: "eth0" });
  assert.deepEqual([deviceId, tags], [UID, ["isthmus", "cluster-c1"]]);
  assert.deepEqual(readOwner(description), { cluster: "c1", namespace: "n", pod: "p", nic: "eth0" });
  const long = describeOwner({
    cluster: "c".repeat(32),
    namespace: "n".repeat(63),
    pod: "p".repeat(253),
    nic: "n".repeat(15),
  });
  assert.equal(Buffer.byteLength(long), 255);
  assert.equal(readOwner(long)?.nic, "n".repeat(15));
});

test("identity: a description of anybody is an owner or none", () => {
  const json = fc.json().map((text) => text);
  const near = fc
    .record({ cluster: fc.anything(), ns: fc.string(), pod: fc.string(), nic: fc.anything() })
    .map((value) => JSON.stringify(value) ?? "");
  fc.assert(
    fc.property(fc.oneof(fc.string(), json, near), (text) => {
      const owner = readOwner(text);
      if (owner !== undefined) for (const value of Object.values(owner)) assert.equal(typeof value, "string");
      readPortName(text);
    }),
  );
});

test("identity: of several ports the recorded one is kept, else the oldest, else the one with the smallest id", () => {
  const ports = [
    port({ id: "c", createdAt: "2026-01-01T00:00:01Z" }),
    port({ id: "b" }),
    port({ id: "a" }),
    port({ id: "z", name: "mine" }),
    port({ id: "y", deviceOwner: "compute:nova" }),
    port({ id: "x", deviceId: OTHER }),
  ];
  const kept = (recorded: ReadonlyMap<string, string>) => {
    const found = ownPorts(ports, UID, recorded).get("eth0");
    return [found?.port.id, ...(found?.surplus.map(({ id }) => id) ?? [])];
  };
  assert.deepEqual(kept(new Map()), ["a", "b", "c"]);
  assert.deepEqual(kept(new Map([["eth0", "c"]])), ["c", "a", "b"]);
});

test("orphans: only old ports of this cluster that nobody wants", () => {
  const isWanted = (uid: string): boolean => uid === OTHER;
  const world = { clusterId: "c1", isWanted, now: NOW, minAgeMs: 900_000 };
  const identity = (uid: string, cluster = "c1") =>
    portIdentity(uid, { cluster, namespace: "n", pod: "p", nic: "eth0" }) as unknown as Partial<VpcPort>;
  const rows: readonly (readonly [claim: string, port: VpcPort, isOrphan: boolean])[] = [
    ["old and unwanted", port(), true],
    ["detached by something else", port({ deviceId: "", deviceOwner: "" }), true],
    ["wanted", port(identity(OTHER)), false],
    ["of another cluster", port(identity(UID, "c2")), false],
    ["without a description", port({ description: "" }), false],
    ["with a name of the user", port({ name: "mine" }), false],
    ["given to another device", port({ deviceId: "router", deviceOwner: "network:router" }), false],
    ["of another owner", port({ deviceOwner: "compute:nova" }), false],
    ["young", port({ createdAt: new Date(NOW - 899_000).toISOString() }), false],
    ["of unknown age", port({ createdAt: "" }), false],
  ];
  for (const [claim, one, isOrphan] of rows) assert.equal(orphansOf([one], world).length, Number(isOrphan), claim);
});

test("quota: of claims that race for the last ports the older ones get them, and nobody waits for one who waits", () => {
  const claim = (uid: string, second: number, ports = 1, isAllowed = false) => ({
    uid,
    createdAt: `2026-01-01T00:00:0${second}Z`,
    ports,
    isAllowed,
  });
  const all = [claim("a", 3), claim("b", 2), claim("c", 2), claim("d", 1, 2, true)];
  const tenant = { name: "acme", maxPorts: 4 };
  const fits = all
    .filter(
      (one) =>
        quotaFault(
          one,
          all.filter((other) => other !== one),
          tenant,
        ) === undefined,
    )
    .map(({ uid }) => uid);
  assert.deepEqual(fits, ["b", "c", "d"]);
  const [last] = all;
  assert.ok(last !== undefined);
  assert.equal(quotaFault(last, all.slice(1), tenant), 'tenant "acme" would use 5 ports of 4');
  assert.equal(quotaFault(last, all.slice(1), undefined), undefined);
});

test("quota: whatever races, the allowed ports never exceed it, and the first that fits is allowed", () => {
  const claims = fc.uniqueArray(
    fc.record({ uid: fc.uuid(), second: fc.integer({ min: 0, max: 3 }), ports: fc.integer({ min: 1, max: 4 }) }),
    { selector: ({ uid }) => uid, maxLength: 12 },
  );
  fc.assert(
    fc.property(claims, fc.integer({ min: 0, max: 16 }), (found, maxPorts) => {
      const allowed = new Set<string>();
      const view = ({ uid, second, ports }: (typeof found)[number]) => ({
        uid,
        createdAt: `2026-01-01T00:00:0${second}Z`,
        ports,
        isAllowed: allowed.has(uid),
      });
      // Passes in any order, until nothing changes.
      for (let round = 0; round < found.length + 1; round += 1) {
        for (const one of found) {
          const others = found.filter((other) => other !== one).map(view);
          if (quotaFault(view(one), others, { name: "t", maxPorts }) === undefined) allowed.add(one.uid);
        }
      }
      const used = found.filter(({ uid }) => allowed.has(uid)).reduce((sum, { ports }) => sum + ports, 0);
      assert.ok(used <= maxPorts);
      const [first] = [...found].sort((a, b) => a.second - b.second || (a.uid < b.uid ? -1 : 1));
      if (first !== undefined && first.ports <= maxPorts) assert.ok(allowed.has(first.uid));
    }),
  );
});

test("tenantText: each reason has words for tenants, which hold nothing of the message for operators", () => {
  for (const reason of [...PROVIDER_REASONS, ...OWN_REASONS]) {
    const message = "port 3 of network 4 is bound to host secret-7 of http://10.0.0.1:9696";
    const text = tenantText({ reason, message });
    if (reason === "QuotaExceeded") continue;
    assert.notEqual(text, tenantText({ reason: "Unheard", message }), `${reason} has no text`);
    assert.doesNotMatch(text, /network 4|secret|10\.0\.0\.1/, reason);
  }
  assert.equal(tenantText({ reason: "PortInUse" }), "the port is in use");
  assert.equal(tenantText({}), "");
});

test("retry: each class of failure has its pace, and a provider's wish is the least", () => {
  const delays = (fault: Parameters<typeof retryDelayMs>[0]) => [1, 2, 3, 20].map((n) => retryDelayMs(fault, n, 0.5));
  assert.deepEqual(delays({ reason: "ProviderUnavailable", retry: "fast" }), [500, 1000, 2000, 60_000]);
  assert.deepEqual(delays({ reason: "IpInUse", retry: "slow" }), [30_000, 60_000, 120_000, 300_000]);
  assert.deepEqual(delays({ reason: "ProviderQuota", retry: "slow" }), [10_000, 20_000, 40_000, 300_000]);
  assert.deepEqual(delays({ reason: "BindingFailed", retry: "fast" }), [1000, 2000, 4000, 30_000]);
  assert.deepEqual(delays({ reason: "BadRequest", retry: "never" }), [300_000, 300_000, 300_000, 300_000]);
  assert.deepEqual(delays({ reason: "PortChanged", retry: "at-once" }), [0, 0, 0, 0]);
  assert.equal(retryDelayMs({ reason: "ProviderUnavailable", retry: "fast", retryAfterMs: 7000 }, 1, 0.5), 7000);
  for (const random of [0, 0.999]) {
    const delayMs = retryDelayMs({ reason: "ProviderUnavailable", retry: "fast" }, 1, random);
    assert.ok(delayMs >= 400 && delayMs <= 600);
  }
  assert.deepEqual(["IpInUse", "BadRequest", undefined].map(endsByRelease), [true, false, false]);
});

test("binding: a failed one is in progress at first, then a failure with what is known of the host's agents", () => {
  const when = { now: NOW, random: 0.5 };
  const broken = port({ binding: { host: "node-1", vifType: "binding_failed" } });
  let nic: NicStatus = { name: "eth0", state: "InProgress", portID: "p1", mac: "m" };
  const states: string[] = [];
  for (let attempt = 1; attempt <= BINDING_TRIES; attempt += 1) {
    const agents = attempt >= BINDING_TRIES ? "there is no agent on host node-1" : undefined;
    nic = bound(nic, { port: broken, host: "node-1", agents }, when);
    states.push(`${nic.state} ${nic.attempts}`);
  }
  assert.deepEqual(states, ["InProgress 1", "InProgress 2", "InProgress 3", "InProgress 4", "Failed 5"]);
  assert.match(nic.message ?? "", /host node-1, vif_type binding_failed: there is no agent on host node-1/);
  const mended = bound(
    nic,
    { port: port({ binding: { host: "node-1", vifType: "ovs" } }), host: "node-1", agents: undefined },
    when,
  );
  assert.deepEqual([mended.state, mended.reason, mended.attempts], ["InProgress", undefined, undefined]);
});

test("a failure counts anew when its reason changes", () => {
  const when = { now: NOW, random: 0.5 };
  let nic: NicStatus = { name: "eth0", state: "InProgress" };
  for (const reason of ["IpInUse", "IpInUse", "SubnetFull"] as const)
    nic = failed(nic, { reason, message: "", retry: "slow" }, when);
  assert.deepEqual([nic.reason, nic.attempts], ["SubnetFull", 1]);
});

test("observe: what a look finds, and what it means for the NIC", () => {
  const nic: NicStatus = {
    name: "eth0",
    state: "InProgress",
    portID: "p1",
    mac: "m",
    createdByController: true,
    host: "node-1",
    vifType: "ovs",
  };
  const ready: NicStatus = { ...nic, state: "Ready", activeAt: "2026-01-01T00:00:00.000Z" };
  const binding = { host: "node-1", vifType: "ovs" };
  const look = (
    one: NicStatus,
    status: VpcPort["status"] | "missing",
    more: { isStarted?: boolean; isEnding?: boolean; downMs?: number; host?: string } = {},
  ) =>
    observeNic(
      one,
      {
        ports:
          status === "missing"
            ? new Map()
            : new Map([["p1", port({ status, binding: { ...binding, host: more.host ?? "node-1" } })]]),
        missing: new Set(status === "missing" ? ["p1"] : []),
        downSince: new Map(more.downMs === undefined ? [] : [["p1", NOW - more.downMs]]),
      },
      {
        pod: {
          isPlugged: more.isStarted ?? false,
          isStarted: more.isStarted ?? false,
          isEnding: more.isEnding ?? false,
        },
        now: NOW,
        random: 0.5,
      },
    );
  assert.equal(look(nic, "DOWN"), nic);
  assert.deepEqual([look(nic, "ACTIVE").state, look(nic, "ACTIVE").activeAt], ["Ready", "2026-01-01T01:00:00.000Z"]);
  assert.equal(look(ready, "ACTIVE"), ready);
  assert.equal(look(ready, "DOWN", { downMs: 29_000 }), ready);
  assert.deepEqual(
    [look(ready, "DOWN", { downMs: 31_000 }).state, look(ready, "DOWN", { downMs: 31_000 }).reason],
    ["InProgress", "PortDown"],
  );
  assert.equal(look(ready, "DOWN", { downMs: 31_000, isEnding: true }), ready);
  assert.deepEqual([look(nic, "ERROR").state, look(nic, "ERROR").reason], ["Failed", "PortError"]);
  assert.equal(look(ready, "ACTIVE", { host: "node-2" }).host, "node-2");
  const alcor = (isPlugged: boolean) =>
    observeNic(
      { ...nic, vifType: "alcor" },
      {
        ports: new Map([["p1", port({ status: "UNKNOWN", binding: { host: "node-1", vifType: "alcor" } })]]),
        missing: new Set(),
        downSince: new Map(),
      },
      { pod: { isPlugged, isStarted: isPlugged, isEnding: false }, now: NOW, random: 0.5 },
    ).state;
  assert.deepEqual([alcor(false), alcor(true)], ["InProgress", "Ready"]);
  const again = look(nic, "missing");
  assert.deepEqual([again.portID, again.state, again.reason], [undefined, "InProgress", "PortLost"]);
  assert.deepEqual(
    [look(ready, "missing", { isStarted: true }).portID, look(ready, "missing", { isStarted: true }).state],
    ["p1", "Failed"],
  );
  const users: NicStatus = { ...nic, createdByController: false };
  assert.deepEqual(
    [look(users, "missing").portID, look(users, "missing").state, look(users, "missing").reason],
    ["p1", "Failed", "PortLost"],
  );
});

test("binding: a type that nobody here can plug is refused by its name, until the provider binds the port otherwise", () => {
  const nic: NicStatus = { name: "eth0", state: "InProgress", portID: "p1", mac: "m", createdByController: true };
  const of = (vifType: string, more: object = {}) => port({ binding: { host: "node-1", vifType, ...more } });
  for (const vifType of ["vhostuser", "bridge", "hw_veb", "other", "distributed"]) {
    const found = bound(nic, { port: of(vifType), host: "node-1", agents: undefined }, { now: NOW, random: 0.5 });
    assert.deepEqual([found.state, found.reason], ["Failed", "VifTypeUnsupported"]);
    assert.match(
      found.message ?? "",
      new RegExp(
        `^port \\S+ is bound to host node-1 as vif_type "${vifType}", which cannot be plugged; ovs and alcor can$`,
      ),
    );
    const seen = {
      ports: new Map([["p1", of("ovs")]]),
      missing: new Set<string>(),
      downSince: new Map<string, number>(),
    };
    const pod = { isPlugged: false, isStarted: false, isEnding: false };
    const healed = observeNic(found, seen, { pod, now: NOW, random: 0.5 });
    assert.deepEqual([healed.state, healed.reason, healed.vifType], ["InProgress", undefined, "ovs"]);
  }
  const made = bound(nic, { port: of("ovs"), host: "node-1", agents: undefined }, { now: NOW, random: 0.5 });
  assert.equal(made.reason, undefined);
  // The device of Alcor's agent counts, however the type is called.
  const alcor = of("vxlan", { vethName: "veth1", netns: "/run/netns/v" });
  assert.equal(
    bound(nic, { port: alcor, host: "node-1", agents: undefined }, { now: NOW, random: 0.5 }).reason,
    undefined,
  );
});

test("observe: a binding that the provider has made good by itself ends the failure, with all that the node needs", () => {
  const nic: NicStatus = {
    name: "eth0",
    state: "Failed",
    portID: "p1",
    mac: "m",
    createdByController: true,
    host: "node-2",
    vifType: "binding_failed",
    reason: "BindingFailed",
    message: "port p1 cannot be bound",
    attempts: 6,
    nextRetryAt: new Date(NOW + 30_000).toISOString(),
  };
  const look = (status: VpcPort["status"], vifType: string, one = nic): NicStatus =>
    observeNic(
      one,
      {
        ports: new Map([["p1", port({ status, binding: { host: "node-2", vifType, ovsHybridPlug: true } })]]),
        missing: new Set(),
        downSince: new Map(),
      },
      { pod: { isPlugged: false, isStarted: false, isEnding: false }, now: NOW, random: 0.5 },
    );
  const { reason: _reason, message: _message, attempts: _attempts, nextRetryAt: _next, ...rest } = nic;
  const good = { ...rest, state: "InProgress", vifType: "ovs", vifDetails: { ovsHybridPlug: true } };
  assert.deepEqual(look("DOWN", "ovs"), good);
  assert.deepEqual(look("ACTIVE", "ovs"), { ...good, state: "Ready", activeAt: new Date(NOW).toISOString() });
  assert.equal(look("DOWN", "binding_failed"), nic);
  // As a controller of before has left it.
  assert.deepEqual(look("DOWN", "ovs", { ...nic, vifType: "ovs" }), good);
});

test("portFault: in a shared network a user's port of another project than the policy's is not taken", () => {
  const vpc = { ref: "shared", projectId: "p", networks: new Map([["n", { mtu: 1450 }]]), subnets: [] };
  const port = {
    id: "a2815656-76f7-46d4-9d11-057063db1a14",
    name: "",
    networkId: "n",
    projectId: "blue",
    status: "DOWN" as const,
    mac: "fa:16:3e:00:00:01",
    addresses: [],
    deviceId: "",
    deviceOwner: "",
    description: "",
    createdAt: "",
    revision: 1,
    securityGroups: [],
    binding: { host: "", vifType: "unbound" },
  };
  const fault = (projectID: string | undefined) =>
    portFault(port, {
      wish: { name: "eth0", portID: port.id },
      vpc,
      podUID: "u",
      host: undefined,
      holder: undefined,
      projectID,
    })?.reason;
  assert.deepEqual([fault(undefined), fault("blue"), fault("red")], [undefined, undefined, "PortNotInVpc"]);
});
