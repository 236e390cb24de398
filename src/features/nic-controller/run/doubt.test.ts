import assert from "node:assert/strict";
import { test } from "node:test";
import { FakeClock } from "#base/clock";
import { FakeCluster } from "../testing/fake-cluster.ts";
import { FakeVpc, type Fate } from "../testing/fake-vpc.ts";
import type { WantedNics } from "../world.ts";

const UID = "6f0e1c1a-0000-4000-8000-000000000001";

function open() {
  const clock = new FakeClock();
  const vpc = new FakeVpc(clock);
  return { clock, vpc, cluster: new FakeCluster(clock, vpc) };
}

/** The first write is done 5 s after its client has given up, all others at once. */
function firstIsLate(): () => Fate {
  let writes = 0;
  return () => {
    writes += 1;
    return writes === 1 ? "late" : "done";
  };
}

function wanting(...nics: WantedNics["nics"]): WantedNics {
  return { kind: "wanted", vpc: "vpc-1", nics };
}

/** The reasons of a refusal by the provider, and the NIC and the limit that lead to each while the pod's own first request is under way. */
const REFUSALS = [
  { reason: "IpInUse", nic: { name: "eth0", subnet: "subnet-1", ip: "10.0.0.9" } },
  { reason: "MacInUse", nic: { name: "eth0", mac: "fa:16:3e:00:00:09" } },
  { reason: "ProviderQuota", nic: { name: "eth0" }, maxPorts: 1 },
] as const;

for (const { reason, nic, ...limits } of REFUSALS) {
  test(`${reason} from the pod's own port, whose request had no answer, ends within seconds of that port`, async () => {
    const { clock, vpc, cluster } = open();
    if ("maxPorts" in limits) vpc.maxPorts = limits.maxPorts;
    vpc.fate = firstIsLate();
    using _ = cluster.start();
    cluster.addPod(UID, wanting(nic));
    await clock.advance(2000);
    assert.equal(cluster.claims.get(UID)?.status?.nics?.[0]?.reason, reason, "the second request meets the first one");
    // The first request is done after 5 s.
    await clock.advance(8000);
    const { phase, nics = [] } = cluster.claims.get(UID)?.status ?? {};
    assert.deepEqual([phase, nics[0]?.portID], ["Created", [...vpc.ports.keys()][0]]);
  });
}

test("a port is looked for by its identity before every request that follows a refusal, also when nothing is in doubt", async () => {
  const { clock, vpc, cluster } = open();
  const other = vpc.addUserPort();
  const addresses = [{ subnetId: vpc.subnets[0]?.id ?? "", ip: "10.0.0.9" }];
  vpc.change(other, { addresses });
  using _ = cluster.start();
  cluster.addPod(UID, wanting({ name: "eth0", subnet: "subnet-1", ip: "10.0.0.9" }));
  await clock.advance(2000);
  const looks = (): number => vpc.calls["find"] ?? 0;
  assert.deepEqual([vpc.calls["create"], looks()], [1, 2], "once before the request, once after its refusal");
  await clock.advance(31_000);
  assert.deepEqual([vpc.calls["create"], looks()], [2, 4]);
  await clock.advance(200_000);
  assert.ok(looks() <= 2 * (vpc.calls["create"] ?? 0), "a refusal costs two looks, and no more");
});

test("a release waits out what it may have asked for: a port that comes after its pod is deleted within seconds", async () => {
  for (const isKilled of [false, true]) {
    const { clock, vpc, cluster } = open();
    vpc.fate = firstIsLate();
    const first = cluster.start();
    cluster.addPod(UID, wanting({ name: "eth0" }));
    await clock.advance(100);
    cluster.deletePod(UID);
    if (isKilled) first[Symbol.dispose]();
    using _ = isKilled ? cluster.start() : first;
    await clock.advance(4900);
    assert.deepEqual([vpc.ports.size, cluster.claims.size], [0, 1]);
    await clock.advance(500);
    await clock.advance(3500);
    assert.equal(vpc.ports.size, 0);
    await clock.advance(70_000);
    assert.deepEqual([vpc.ports.size, vpc.calls["delete"], cluster.claims.size], [0, 1, 0]);
    assert.ok((vpc.calls["find"] ?? 0) <= 30, `${vpc.calls["find"]} look-ups in 70 s`);
  }
});

test("a second port of a young NIC is deleted by the leader after the one that has asked for it, also after the pod", async () => {
  const { clock, vpc, cluster } = open();
  vpc.fate = firstIsLate();
  const first = cluster.start();
  cluster.addPod(UID, wanting({ name: "eth0" }));
  // The second request has made the port, and it is recorded; the first one is still under way.
  await clock.advance(2000);
  assert.equal(cluster.claims.get(UID)?.status?.phase, "Created");
  first[Symbol.dispose]();
  cluster.deletePod(UID);
  using _ = cluster.start();
  await clock.advance(10_000);
  assert.deepEqual([...vpc.ports.keys()], []);
  await clock.advance(70_000);
  assert.equal(cluster.claims.size, 0);
});

test("IpInUse, MacInUse and PortInUse name the pod of this cluster that has it, for operators alone", async () => {
  const { clock, vpc, cluster } = open();
  using _ = cluster.start();
  const lent = vpc.addUserPort();
  const [first, second, third] = [UID, `${UID.slice(0, -1)}2`, `${UID.slice(0, -1)}3`];
  const fixed = wanting(
    { name: "eth0", subnet: "subnet-1", ip: "10.0.0.9" },
    { name: "eth1", mac: "fa:16:3e:00:00:09" },
    { name: "eth2", portID: lent },
  );
  cluster.addPod(first, fixed);
  await clock.advance(2000);
  assert.equal(cluster.claims.get(first)?.status?.phase, "Created");
  const made = cluster.claims.get(first)?.status?.nics?.[0]?.portID ?? "";
  cluster.addPod(second, fixed);
  cluster.addPod(third, wanting({ name: "eth0", portID: made }));
  await clock.advance(2000);
  const told = (uid: string) =>
    cluster.claims.get(uid)?.status?.nics?.map(({ reason, message }) => [reason, message]) ?? [];
  const name = `default/${cluster.claims.get(first)?.spec.podName}`;
  const wanted: readonly (readonly [string, RegExp])[] = [
    ["IpInUse", new RegExp(`; pod ${name} has it$`)],
    ["MacInUse", new RegExp(`; pod ${name} has it$`)],
    ["PortInUse", new RegExp(`is claimed by pod ${name} \\(uid ${first}\\)$`)],
  ];
  for (const [at, [reason, text]] of wanted.entries()) {
    assert.equal(told(second)[at]?.[0], reason);
    assert.match(told(second)[at]?.[1] ?? "", text);
  }
  assert.equal(told(third)[0]?.[0], "PortInUse");
  assert.match(
    told(third)[0]?.[1] ?? "",
    new RegExp(`is in use by pod ${name} \\(device ${first} of compute:isthmus\\)$`),
  );
  for (const { note } of cluster.events.filter(({ reason }) => reason.endsWith("InUse")))
    assert.doesNotMatch(note, new RegExp(name));
});

test("events of pods hold nothing that others have; the claim keeps it for operators", async () => {
  const { clock, vpc, cluster } = open();
  const port = vpc.addUserPort();
  vpc.change(port, {
    deviceId: "their-device",
    deviceOwner: "compute:theirs",
    binding: { host: "their-host", vifType: "ovs" },
  });
  using _ = cluster.start();
  cluster.addPod(UID, wanting({ name: "eth0", portID: port }));
  await clock.advance(2000);
  assert.match(cluster.claims.get(UID)?.status?.nics?.[0]?.message ?? "", /in use by device their-device/);
  assert.deepEqual(
    cluster.events.map(({ reason, note }) => [reason, note]),
    [["PortInUse", "eth0: the port is in use"]],
  );
});
