// The shipped controller of NICs with a real Neutron and the embedded API server: NICs and groups that change on pods that run.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { resources } from "#kube/client";
import type { NicClaim } from "#kube/nic";
import type { Running } from "#test/lab";
import type { SeenRequest } from "#test/neutron-proxy";
import { NicBed } from "#test/nic-bed";
import { NAMESPACE, nicOf, type RawPort } from "#test/nic-cluster";

describe("hot-plug on a real Neutron", () => {
  let bed: NicBed;
  let controller: Running;
  const cleanUps: (() => unknown)[] = [];
  after(async () => {
    for (const cleanUp of cleanUps) await cleanUp();
  });
  before(async () => {
    bed = await NicBed.open({ after: (cleanUp) => void cleanUps.push(cleanUp) });
    await bed.policy({ hotplug: true });
    controller = bed.run();
  });

  /** Changes the annotation of a running pod as a user does. */
  async function want(name: string, nics: readonly object[]): Promise<void> {
    const body = { metadata: { annotations: { "isthmus.dev/nics": JSON.stringify(nics) } } };
    await bed.api.patch(resources.pods, { name, namespace: NAMESPACE }, { type: "merge", body });
  }

  /** A pod that runs, with its NICs plugged. */
  async function running(name: string, nics: readonly object[]): Promise<string> {
    const uid = await bed.pod(name, { nics, node: "node-1" });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Plumbable");
    for (const { id } of await portsOf(uid)) bed.neutron.setStatus(id, "ACTIVE");
    await bed.follow(uid);
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Active");
    return uid;
  }

  const portsOf = async (uid: string): Promise<readonly RawPort[]> =>
    (await bed.neutron.list(`ports?device_id=${uid}`)) as readonly RawPort[];
  const names = ({ status }: NicClaim): readonly string[] => (status?.nics ?? []).map(({ name }) => name);
  const isBound = (claim: NicClaim, nic: string): boolean =>
    claim.status?.nics?.some((one) => one.name === nic && one.vifType === "ovs") === true;

  test("a NIC that is added is made and bound; one that is removed loses its port when the node has unplugged it", async () => {
    const uid = await running("grows", [{ name: "eth0" }]);
    await want("grows", [{ name: "eth0" }, { name: "eth1", subnet: "subnet-1", ip: "192.168.9.1", tag: "second" }]);
    const grown = await bed.untilClaim(uid, (claim) => isBound(claim, "eth1"));
    assert.deepEqual([nicOf(grown, "eth1").ips?.[0]?.ip, nicOf(grown, "eth1").tag], ["192.168.9.1", "second"]);
    assert.equal(grown.status?.phase, "Plumbable");
    bed.neutron.setStatus(nicOf(grown, "eth1").portID ?? "", "ACTIVE");
    await bed.follow(uid);
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Active");
    await want("grows", [{ name: "eth0" }]);
    const shrinking = await bed.untilClaim(uid, ({ spec }) => spec.nics.length === 1);
    assert.deepEqual([names(shrinking), (await portsOf(uid)).length], [["eth0", "eth1"], 2]);
    // Its address cannot be had meanwhile.
    const other = await bed.pod("waits", { nics: [{ subnet: "subnet-1", ip: "192.168.9.1" }] });
    await bed.untilClaim(other, ({ status }) => status?.nics?.[0]?.reason === "IpInUse");
    await bed.follow(uid);
    const shrunk = await bed.untilClaim(uid, (claim) => names(claim).length === 1);
    assert.deepEqual(
      [shrunk.status?.phase, (await portsOf(uid)).map(({ name }) => name)],
      ["Active", [`nic-${uid}-eth0`]],
    );
    await bed.untilClaim(other, ({ status }) => status?.phase === "Created");
    for (const name of ["grows", "waits"]) await bed.deletePod(name);
    for (const one of [uid, other]) await bed.untilGone(one);
    assert.deepEqual(await bed.ports(), []);
  });

  test("T-39: security groups that change on a running pod are those of its port, and the default ones in the end", async () => {
    const made = new Map<string, string>();
    for (const name of ["web", "db"]) {
      const { security_group: group } = await bed.neutron.request("POST", "security-groups", {
        security_group: { name },
      });
      made.set(String(group?.["id"]), name);
    }
    const uid = await running("grouped", [{ name: "eth0", securityGroup: "web" }]);
    const groups = async (): Promise<string> => {
      const [port] = await portsOf(uid);
      const ids = (port?.["security_groups"] ?? []) as readonly string[];
      return ids
        .map((id) => made.get(id) ?? "default")
        .sort()
        .join();
    };
    assert.equal(await groups(), "web");
    await want("grouped", [{ name: "eth0", securityGroups: ["db", "web"] }]);
    await bed.until("both groups", async () => (await groups()) === "db,web");
    await want("grouped", [{ name: "eth0", securityGroup: "no-such-group" }]);
    await bed.until("an event tells it", async () =>
      (await bed.events(uid)).some(({ reason }) => reason === "SecurityGroupNotFound"),
    );
    const claim = (await bed.claim(uid)) ?? assert.fail();
    assert.deepEqual([await groups(), nicOf(claim).state, claim.status?.phase], ["db,web", "Ready", "Active"]);
    await want("grouped", [{ name: "eth0" }]);
    await bed.until("the default group", async () => (await groups()) === "default");
    await bed.deletePod("grouped");
    await bed.untilGone(uid);
  });

  test("a status that a tenant writes into a pod is overwritten, and a change that it may not have changes nothing", async () => {
    const uid = await running("spoofed", [{ name: "eth0" }]);
    const key = "isthmus.dev/nic-status";
    const shown = async (): Promise<string | undefined> => (await bed.findPod("spoofed"))?.metadata.annotations?.[key];
    await bed.until("the pod shows it", async () => (await shown())?.includes('"state":"Ready"') === true);
    // No webhook is asked here.
    const annotate = (annotations: Record<string, string>) =>
      bed.api.patch(
        resources.pods,
        { name: "spoofed", namespace: NAMESPACE },
        { type: "merge", body: { metadata: { annotations } } },
      );
    for (const lie of ["[]", '[{"name":"eth0","state":"Failed"}]']) {
      await annotate({ [key]: lie });
      await bed.until("the truth is back", async () => (await shown())?.includes('"state":"Ready"') === true);
    }
    for (const [change, says] of [
      [{ "isthmus.dev/vpc": "vpc-2" }, /vpc: may not change/],
      [{ "isthmus.dev/vpc": "vpc-1", "isthmus.dev/nics": '[{"name":"eth9"}]' }, /one NIC must be named eth0/],
      [
        { "isthmus.dev/nics": JSON.stringify(Array.from({ length: 32 }, (_, at) => ({ name: `eth${at}` }))) },
        /32 NICs/,
      ],
      [{ "isthmus.dev/nics": JSON.stringify(Array.from({ length: 99 }, () => ({}))) }, /Too many: 99/],
      [{ "isthmus.dev/nics": "[[" }, /nics/],
    ] as const) {
      await annotate(change);
      await bed.until(`an event tells ${says}`, async () =>
        (await bed.events(uid)).some(({ reason, note = "" }) => reason === "NicsRefused" && says.test(note)),
      );
    }
    const claim = (await bed.claim(uid)) ?? assert.fail();
    assert.deepEqual([claim.spec.vpc, claim.spec.nics, (await portsOf(uid)).length], ["vpc-1", [{ name: "eth0" }], 1]);
    assert.equal(claim.metadata.generation, 1, "nothing was written into its spec");
    await bed.deletePod("spoofed");
    await bed.untilGone(uid);
  });

  test("a user's port that is added and removed has what it had before", async () => {
    const [network] = await bed.neutron.list("networks?name=vpc-1");
    const port = { network_id: network?.["id"], name: "mine", device_owner: "their:own" };
    const id = String((await bed.neutron.request("POST", "ports", { port }))["port"]?.["id"]);
    const uid = await running("lends", [{ name: "eth0" }]);
    await want("lends", [{ name: "eth0" }, { name: "eth1", portID: id }]);
    const claim = await bed.untilClaim(uid, (one) => isBound(one, "eth1"));
    assert.deepEqual([nicOf(claim, "eth1").createdByController, nicOf(claim, "eth1").portID], [false, id]);
    await bed.follow(uid);
    await want("lends", [{ name: "eth0" }]);
    await bed.untilClaim(uid, ({ spec }) => spec.nics.length === 1);
    await bed.follow(uid);
    await bed.untilClaim(uid, (one) => names(one).length === 1);
    const [back] = await bed.neutron.list(`ports?id=${id}`);
    assert.deepEqual(
      [back?.["name"], back?.["device_id"], back?.["device_owner"], back?.["binding:host_id"]],
      ["mine", "", "their:own", ""],
    );
    await bed.deletePod("lends");
    await bed.untilGone(uid);
    await bed.neutron.request("DELETE", `ports/${id}`);
  });

  test("a pod with the scheduling gate gets its node when all its ports exist; others' gates stay", async () => {
    const gates = ["isthmus.dev/nics", "example.com/other"];
    const taken = await bed.pod("holds", { nics: [{ subnet: "subnet-1", ip: "192.168.9.9" }] });
    await bed.untilClaim(taken, ({ status }) => status?.phase === "Created");
    const uid = await bed.pod("gated", {
      nics: [{ name: "eth0" }, { name: "eth1", subnet: "subnet-1", ip: "192.168.9.9" }],
      gates,
    });
    await bed.untilClaim(uid, ({ status }) => status?.phase === "Failed");
    await bed.until("the pod says why it waits", async () => {
      const { metadata, spec, status } = (await bed.findPod("gated")) ?? assert.fail();
      assert.equal(spec?.schedulingGates?.length, 2);
      const ready = status?.conditions?.find(({ type }) => type === "isthmus.dev/NicsReady");
      return (
        ready?.reason === "IpInUse" && metadata.annotations?.["isthmus.dev/nic-status"]?.includes("IpInUse") === true
      );
    });
    await assert.rejects(bed.schedule("gated"), /non-empty .spec.schedulingGates/);
    await bed.deletePod("holds");
    await bed.until("its own gate is gone", async () => {
      const names = (await bed.findPod("gated"))?.spec?.schedulingGates?.map(({ name }) => name);
      return names?.join() === "example.com/other";
    });
    assert.equal((await bed.claim(uid))?.status?.phase, "Created");
    await bed.deletePod("gated");
    await bed.untilGone(uid);
    const plain = {
      metadata: { name: "plain", namespace: NAMESPACE },
      spec: { containers: [{ name: "c", image: "i" }] },
    };
    await bed.api.create(resources.pods, {
      ...plain,
      spec: { ...plain.spec, schedulingGates: [{ name: "isthmus.dev/nics" }] },
    });
    await bed.until(
      "a gate that somebody wrote into a pod without NICs is removed",
      async () => ((await bed.findPod("plain"))?.spec?.schedulingGates?.length ?? 0) === 0,
    );
    await bed.deletePod("plain");
  });

  for (const point of ["before", "after"] as const) {
    test(`killed ${point} ports of added and removed NICs are made and deleted, controllers leave each NIC one port (T-21)`, async () => {
      const makes = ({ method, path }: SeenRequest): boolean => method === "POST" && path === "/v2.0/ports";
      const deletes = ({ method, path }: SeenRequest): boolean =>
        method === "DELETE" && path.startsWith("/v2.0/ports/");
      const uid = await running(`shaken-${point}`, [{ name: "eth0" }, { name: "eth1" }]);
      const isRight = async (wanted: readonly string[]): Promise<boolean> => {
        await bed.follow(uid);
        const claim = (await bed.claim(uid)) ?? assert.fail();
        if (names(claim).join() !== wanted.join() || !wanted.every((nic) => isBound(claim, nic))) return false;
        const ports = (await portsOf(uid)).map(({ id }) => id).sort();
        assert.deepEqual(ports, (claim.status?.nics ?? []).map(({ portID = "" }) => portID).sort());
        return true;
      };
      const steps = [
        { meets: makes, wanted: ["eth0", "eth1", "eth2"] },
        { meets: deletes, wanted: ["eth0", "eth2"] },
        { meets: makes, wanted: ["eth0", "eth2", "eth1"] },
      ];
      for (const { meets, wanted } of steps) {
        const killed = bed.killAt(controller, meets, point);
        await want(
          `shaken-${point}`,
          wanted.map((name) => ({ name })),
        );
        let isKilled = false;
        void killed.then(() => {
          isKilled = true;
        });
        await bed.until("the controller is killed", async () => {
          if (!isKilled) await bed.follow(uid);
          return isKilled;
        });
        controller = bed.run();
        await bed.until(`the pod has ${wanted.join()}`, () => isRight(wanted));
      }
      await bed.deletePod(`shaken-${point}`);
      await bed.untilGone(uid);
      assert.deepEqual(await bed.ports(), []);
    });
  }
});
