// The shipped controller of NICs with a real Neutron and the embedded API server: what pods get, and what they are told.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { resources } from "#kube/client";
import { HttpProxy } from "#test/neutron-proxy";
import { NicBed } from "#test/nic-bed";
import { NAMESPACE, nicOf, type RawPort } from "#test/nic-cluster";

describe("nic-controller on a real Neutron", () => {
  let bed: NicBed;
  const cleanUps: (() => unknown)[] = [];
  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });
  before(async () => {
    bed = await NicBed.open({ after: (cleanUp) => void cleanUps.push(cleanUp) });
    bed.run("--gc-interval=1s", "--gc-min-age=3s");
  });

  test("a pod gets its port before it has a node, on its node the binding, and when it is plugged it is ready (T-11)", async () => {
    const uid = await bed.pod("web");
    const made = await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    const nic = nicOf(made);
    assert.equal(nic.createdByController, true);
    assert.match(nic.ips?.[0]?.ip ?? "", /^192\.168\.\d+\.\d+$/);
    assert.deepEqual([nic.ips?.[0]?.prefixLength, nic.ips?.[0]?.gateway, nic.mtu], [16, "192.168.0.1", 1450]);
    const [port] = (await bed.ports()).filter(({ device_id: device }) => device === uid);
    assert.equal(port?.name, `nic-${uid}-eth0`);
    assert.equal(port?.["description"], JSON.stringify({ cluster: "c1", ns: NAMESPACE, pod: "web", nic: "eth0" }));
    assert.deepEqual(port?.["tags"], ["cluster-c1", "isthmus"]);
    await bed.schedule("web");
    const bound = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    assert.deepEqual([nicOf(bound).host, nicOf(bound).vifType], ["node-1", "ovs"]);
    assert.equal(bound.metadata.labels?.["isthmus.dev/node"], "node-1");
    bed.neutron.setStatus(port?.id ?? "", "ACTIVE");
    await bed.tell(uid, "Plugged");
    const ready = await bed.untilClaim(uid, ({ status }) => status?.phase === "Active");
    assert.equal(nicOf(ready).state, "Ready");
    await bed.until("the pod shows it", async () => {
      const pod = await bed.findPod("web");
      return (
        pod?.status?.conditions?.some(({ type, status }) => type === "isthmus.dev/NicsReady" && status === "True") ===
        true
      );
    });
    assert.match((await bed.findPod("web"))?.metadata.annotations?.["isthmus.dev/nic-status"] ?? "", /"state":"Ready"/);
    await bed.deletePod("web");
    await bed.untilGone(uid);
    assert.deepEqual(
      (await bed.ports()).filter(({ device_id: device }) => device === uid),
      [] as RawPort[],
    );
    await bed.until("events tell it", async () => {
      const reasons = (await bed.events(uid)).map(({ reason }) => reason).sort();
      return JSON.stringify(reasons) === '["PortCreated","PortDeleted"]';
    });
  });

  /** A port of the user; returns its id. */
  async function userPort(port: object = {}, network = "vpc-1"): Promise<string> {
    const [found] = await bed.neutron.list(`networks?name=${network}`);
    const made = await bed.neutron.request("POST", "ports", { port: { network_id: found?.["id"], ...port } });
    return String(made["port"]?.["id"]);
  }
  const portOf = async (id: string): Promise<RawPort | undefined> =>
    (await bed.neutron.list(`ports?id=${id}`))[0] as RawPort | undefined;

  test("of two pods that want one address the second waits, and has it when the first is gone (T-12, T-13)", async () => {
    const nics = [{ subnet: "subnet-1", ip: "192.168.7.12", mac: "02:00:00:00:07:12" }];
    const first = await bed.pod("first", { nics });
    const one = await bed.untilClaim(first, ({ status }) => status?.phase === "Created");
    assert.deepEqual([nicOf(one).ips?.[0]?.ip, nicOf(one).mac], ["192.168.7.12", "02:00:00:00:07:12"]);
    const second = await bed.pod("second", { nics: [{ subnet: "subnet-1", ip: "192.168.7.12" }, { name: "eth1" }] });
    const two = await bed.untilClaim(second, ({ status }) => status?.phase === "Failed");
    assert.deepEqual([nicOf(two).state, nicOf(two).reason], ["Failed", "IpInUse"]);
    // The other NIC has its port.
    assert.equal(nicOf(two, "eth1").createdByController, true);
    await bed.until("an event tells it", async () =>
      (await bed.events(second)).some(({ reason }) => reason === "IpInUse"),
    );
    await bed.deletePod("first");
    const healed = await bed.untilClaim(second, ({ status }) => status?.phase === "Created");
    assert.deepEqual([nicOf(healed).ips?.[0]?.ip, nicOf(healed).reason], ["192.168.7.12", undefined]);
    await bed.deletePod("second");
    await bed.untilGone(second);
  });

  test("a pod of the same name has the address of the one before, as in a StatefulSet (T-29)", async () => {
    const nics = [{ subnet: "subnet-1", ip: "192.168.7.29" }];
    let uid = await bed.pod("db-0", { nics, node: "node-1" });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    for (let round = 0; round < 3; round += 1) {
      const before = uid;
      await bed.deletePod("db-0");
      uid = await bed.pod("db-0", { nics, node: "node-1" });
      const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
      assert.equal(nicOf(claim).ips?.[0]?.ip, "192.168.7.29");
      await bed.untilGone(before);
    }
    await bed.deletePod("db-0");
    await bed.untilGone(uid);
  });

  test("what cannot be had is told for each NIC, with its reason (T-14 to T-16)", async () => {
    await bed.neutron.makeNetwork({ name: "twice" }, []);
    await bed.neutron.makeNetwork({ name: "twice" }, []);
    const wishes: readonly (readonly [name: string, vpc: string, nic: object, reason: string])[] = [
      ["outside", "vpc-1", { subnet: "subnet-1", ip: "10.0.0.1" }, "IpNotInSubnet"],
      ["gateway", "vpc-1", { subnet: "subnet-1", ip: "192.168.0.1" }, "IpIsGateway"],
      ["no-subnet", "vpc-1", { subnet: "no-such-subnet" }, "SubnetNotFound"],
      ["no-group", "vpc-1", { securityGroup: "no-such-group" }, "SecurityGroupNotFound"],
      ["no-vpc", "no-such-vpc", {}, "VpcNotFound"],
      ["several", "twice", {}, "AmbiguousVpc"],
    ];
    const uids = await Promise.all(wishes.map(([name, vpc, nic]) => bed.pod(name, { vpc, nics: [nic] })));
    for (const [at, [name, , , reason]] of wishes.entries()) {
      const claim = await bed.untilClaim(uids[at] ?? "", ({ status }) => status?.phase === "Failed");
      assert.deepEqual([name, nicOf(claim).state, nicOf(claim).reason], [name, "Failed", reason]);
      const pod = await bed.findPod(name);
      await bed.until("the pod's condition has the reason", async () =>
        Boolean((await bed.findPod(name))?.status?.conditions?.some((one) => one.reason === reason)),
      );
      await bed.deletePod(pod?.metadata.name ?? "");
      await bed.untilGone(uids[at] ?? "");
    }
    assert.deepEqual(await bed.ports(), []);
  });

  test("a full subnet and a tenant's quota: who waits gets the port that another gives back (T-17, T-50)", async () => {
    // Of eight addresses two are reserved, one is the gateway's.
    await bed.neutron.makeNetwork({ name: "small" }, ["10.9.0.0/29"]);
    const uids: string[] = [];
    for (let at = 0; at < 6; at += 1) {
      uids.push(await bed.pod(`small-${at}`, { vpc: "small" }));
      await bed.untilClaim(uids[at] ?? "", ({ status }) => status?.phase === (at < 5 ? "Created" : "Failed"));
    }
    const last = uids[5] ?? "";
    assert.equal(nicOf((await bed.claim(last)) ?? assert.fail()).reason, "SubnetFull");
    await bed.deletePod("small-0");
    await bed.untilClaim(last, ({ status }) => status?.phase === "Created");
    await bed.policy({ tenants: [{ name: "acme", selector: { names: [NAMESPACE] }, maxPorts: 6 }] });
    const one = await bed.pod("quota-1", { nics: [{}] });
    await bed.untilClaim(one, ({ status }) => status?.phase === "Created");
    const two = await bed.pod("quota-2", { nics: [{}] });
    const refused = await bed.untilClaim(two, ({ status }) => status?.nics?.[0]?.reason === "QuotaExceeded");
    assert.equal(refused.status?.phase, "Pending");
    assert.equal(nicOf(refused).message, 'tenant "acme" would use 7 ports of 6');
    await bed.deletePod("quota-1");
    await bed.untilClaim(two, ({ status }) => status?.phase === "Created");
    await bed.policy({});
    for (let at = 1; at < 6; at += 1) await bed.deletePod(`small-${at}`);
    await bed.deletePod("quota-2");
    for (const uid of [...uids, two]) await bed.untilGone(uid);
  });

  test("a user's port is bound for the pod, survives it, and has what it had before (T-25)", async () => {
    const id = await userPort({ name: "mine", fixed_ips: [{ ip_address: "192.168.7.25" }], device_owner: "their:own" });
    const uid = await bed.pod("lent", { nics: [{ portID: id }, { name: "eth1" }], node: "node-1" });
    const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    assert.deepEqual(
      [nicOf(claim).createdByController, nicOf(claim).ips?.[0]?.ip, nicOf(claim).portName],
      [false, "192.168.7.25", "mine"],
    );
    const taken = await portOf(id);
    assert.deepEqual([taken?.["device_id"], taken?.["binding:host_id"]], [uid, "node-1"]);
    await bed.deletePod("lent");
    await bed.untilGone(uid);
    const back = await portOf(id);
    assert.deepEqual(
      [back?.name, back?.["device_id"], back?.["device_owner"], back?.["binding:host_id"]],
      ["mine", "", "their:own", ""],
    );
    assert.deepEqual(await bed.ports(), []);
    await bed.neutron.request("DELETE", `ports/${id}`);
  });

  test("a user's port that is in use, of another VPC, gone or other than asserted is not taken (T-26)", async () => {
    await bed.neutron.makeNetwork({ name: "vpc-2" }, ["10.2.0.0/24"]);
    const [used, foreign, free] = [
      await userPort({ device_id: "router-7" }),
      await userPort({}, "vpc-2"),
      await userPort(),
    ];
    const wishes: readonly (readonly [name: string, nic: object, reason: string])[] = [
      ["used", { portID: used }, "PortInUse"],
      ["foreign", { portID: foreign }, "PortNotInVpc"],
      ["absent", { portID: "a2815656-76f7-46d4-9d11-057063db1a14" }, "PortNotFound"],
      ["other", { portID: free, ip: "192.168.200.200", subnet: "subnet-1" }, "PortMismatch"],
    ];
    for (const [name, nic, reason] of wishes) {
      const uid = await bed.pod(name, { nics: [nic] });
      const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Failed");
      assert.deepEqual([name, nicOf(claim).reason], [name, reason]);
      if (reason === "PortInUse") assert.match(nicOf(claim).message ?? "", /router-7/);
      await bed.deletePod(name);
      await bed.untilGone(uid);
    }
    const holder = await bed.pod("holder", { nics: [{ portID: free }] });
    await bed.untilClaim(holder, ({ status }) => status?.phase === "Created");
    const second = await bed.pod("second", { nics: [{ portID: free }] });
    const refused = await bed.untilClaim(second, ({ status }) => status?.phase === "Failed");
    assert.match(nicOf(refused).message ?? "", new RegExp(holder));
    await bed.deletePod("holder");
    await bed.untilClaim(second, ({ status }) => status?.phase === "Created");
    await bed.deletePod("second");
    await bed.untilGone(second);
    for (const id of [used, foreign, free]) {
      const port = await portOf(id);
      assert.equal(port?.["device_id"], id === used ? "router-7" : "");
      await bed.neutron.request("DELETE", `ports/${id}`);
    }
  });

  test("a subnet with SLAAC, of which Neutron gives each port an address, is only for NICs that want IPv6", async () => {
    const network = await bed.neutron.request("POST", "networks", { network: { name: "dual" } });
    const id = String(network["network"]?.["id"]);
    for (const subnet of [
      { cidr: "10.77.0.0/24", ip_version: 4 },
      { cidr: "fd00:77::/64", ip_version: 6, ipv6_ra_mode: "slaac", ipv6_address_mode: "slaac" },
    ])
      await bed.neutron.request("POST", "subnets", { subnet: { network_id: id, ...subnet } });
    const uid = await bed.pod("single", { vpc: "dual", nics: [{}, { name: "eth1", ipv6Enabled: true }] });
    const claim = await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    const prefixes = claim.status?.nics?.map(({ ips = [] }) => ips.map(({ prefixLength }) => prefixLength).sort());
    assert.deepEqual(prefixes, [[24], [24, 64]]);
    const ports = (await bed.ports()).filter(({ device_id: device }) => device === uid);
    assert.deepEqual(
      ports.map((port) => [(port["fixed_ips"] as readonly unknown[]).length, port["tags"]]),
      Array(2).fill([2, ["cluster-c1", "isthmus"]]),
    );
    await bed.deletePod("single");
    await bed.untilGone(uid);
    await bed.neutron.request("DELETE", `networks/${id}`);
  });

  test("a host without an agent: the message names it and those that there are, and the binding heals", async () => {
    const uid = await bed.pod("homeless", { node: "node-2" });
    // A Node that is not known has no host yet.
    const made = await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    assert.equal(nicOf(made).host, "");
    await bed.api.create(resources.nodes, { metadata: { name: "node-2" } });
    const failed = await bed.untilClaim(uid, ({ status }) => status?.nics?.[0]?.reason === "BindingFailed");
    assert.deepEqual([nicOf(failed).state, nicOf(failed).host], ["InProgress", "node-2"]);
    assert.match(nicOf(failed).message ?? "", /cannot be bound to host node-2, vif_type binding_failed/);
    bed.neutron.addAgent("real-host");
    // The node's agent has another name than the node.
    const annotations = { "isthmus.dev/provider-host": "real-host" };
    await bed.api.patch(resources.nodes, { name: "node-2" }, { type: "merge", body: { metadata: { annotations } } });
    const healed = await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    assert.deepEqual([nicOf(healed).host, nicOf(healed).reason], ["real-host", undefined]);
    await bed.deletePod("homeless");
    await bed.untilGone(uid);
  });

  test("a port that somebody deletes is made again for a pod that has not started, and told for one that has", async () => {
    const young = await bed.pod("young", { node: "node-1" });
    const first = nicOf(await bed.untilClaim(young, ({ status }) => status?.phase === "Plumbable")).portID;
    await bed.neutron.request("DELETE", `ports/${first}`);
    const again = await bed.untilClaim(young, ({ status }) => {
      const id = status?.nics?.[0]?.portID;
      return status?.phase === "Plumbable" && id !== undefined && id !== first;
    });
    bed.neutron.setStatus(nicOf(again).portID ?? "", "ACTIVE");
    await bed.tell(young, "Plugged");
    await bed.untilClaim(young, ({ status }) => status?.phase === "Active");
    await bed.deletePod("young");
    await bed.untilGone(young);
  });

  test("only old ports of this cluster without a claim are collected (T-24)", async () => {
    const gone = "11111111-2222-4333-8444-555555555555";
    const own = (uid: string, cluster: string, owner = "compute:isthmus"): object => ({
      name: `nic-${uid}-eth0`,
      device_id: uid,
      device_owner: owner,
      description: JSON.stringify({ cluster, ns: NAMESPACE, pod: "old", nic: "eth0" }),
    });
    const uid = await bed.pod("wanted");
    const wanted = nicOf(await bed.untilClaim(uid, ({ status }) => status?.phase === "Created")).portID ?? "";
    const orphan = await userPort(own(gone, "c1"));
    const others = [
      await userPort(own(gone, "c2")),
      await userPort({ ...own(gone, "c1"), description: "" }),
      await userPort({ ...own(gone, "c1"), name: "mine" }),
      await userPort(own(gone, "c1", "compute:nova")),
    ];
    const detached = await userPort({ ...own(gone, "c1", ""), device_id: "" });
    await bed.neutron.request("PUT", `ports/${detached}/tags`, { tags: ["isthmus", "cluster-c1"] });
    await bed.until("both orphans are gone", async () => {
      const left = await Promise.all([orphan, detached].map(portOf));
      return left.every((port) => port === undefined);
    });
    for (const id of [wanted, ...others]) assert.notEqual(await portOf(id), undefined);
    for (const id of others) await bed.neutron.request("DELETE", `ports/${id}`);
    await bed.deletePod("wanted");
    await bed.untilGone(uid);
  });

  test("pods that may not have what they ask for get no claim, and are told why", async () => {
    await bed.policy({ vpcBindings: [{ vpc: "vpc-1", namespaces: ["other"] }] });
    const uid = await bed.pod("stranger");
    await bed.until("an event tells it", async () =>
      (await bed.events(uid)).some(({ reason }) => reason === "NicsRefused"),
    );
    assert.equal(await bed.claim(uid), undefined);
    await bed.policy({});
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
    await bed.deletePod("stranger");
    await bed.untilGone(uid);
  });

  test("a pod that has ended keeps its ports until its node has unplugged it", async () => {
    const uid = await bed.pod("job", { node: "node-1" });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    await bed.tell(uid, "Plugged");
    const body = { status: { phase: "Succeeded" } };
    await bed.api.patch(
      resources.pods,
      { name: "job", namespace: NAMESPACE },
      { type: "merge", body },
      { subresource: "status" },
    );
    // A later pod shows that the controller has seen the change.
    const later = await bed.pod("later");
    await bed.untilClaim(later, ({ status }) => status?.phase === "Created");
    assert.equal((await bed.ports()).length, 2);
    await bed.tell(uid, "Unplugged");
    await bed.untilGone(uid);
    assert.equal((await bed.ports()).length, 1);
    for (const name of ["job", "later"]) await bed.deletePod(name);
    await bed.untilGone(later);
  });

  test("credentials that change are used without a restart", async (t) => {
    const second = await HttpProxy.open(bed.neutron.url);
    t.after(() => second[Symbol.asyncDispose]());
    bed.writeCredentials(second.url);
    await bed.until("the new endpoint is asked", async () => {
      const uid = await bed.pod("rotated");
      await bed.untilClaim(uid, ({ status }) => status?.phase === "Created");
      await bed.deletePod("rotated");
      await bed.untilGone(uid);
      return second.requests.some(({ method }) => method === "POST");
    });
    bed.writeCredentials();
  });
});
