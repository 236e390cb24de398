import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { systemClock } from "#base/clock";
import { OvsBed, skipWithoutOvs } from "#test/ovs-bed";
import { isOvn, isOvsdbError, OpenVSwitch, type OvsPort } from "./index.ts";

const NETNS = `iso-ovs-${process.pid}`;
const options = { skip: skipWithoutOvs };
let bed: OvsBed | undefined;
let ovs: OpenVSwitch;

function theBed(): OvsBed {
  assert.ok(bed !== undefined);
  return bed;
}

before(async () => {
  if (skipWithoutOvs !== false) return;
  execFileSync("ip", ["netns", "add", NETNS]);
  bed = await OvsBed.open({ netns: NETNS });
  ovs = new OpenVSwitch({ clock: systemClock }, { socketPath: bed.socketPath, timeoutMs: 5000 });
});
after(async () => {
  await bed?.[Symbol.asyncDispose]();
  if (bed !== undefined) execFileSync("ip", ["netns", "delete", NETNS]);
});

/** A port with a device that is there. */
function port(device: string, ids: Readonly<Record<string, string>> = {}): OvsPort {
  execFileSync("ip", ["-n", NETNS, "link", "add", device, "up", "type", "veth", "peer", "name", `${device}-p`]);
  return { bridge: "br-int", device, externalIds: { "iface-id": `id-${device}`, "vm-id": "c1", ...ids } };
}

test("addPort: the switch serves the port, with its external ids", options, async () => {
  const one = port("tap-one", { "attached-mac": "fa:16:3e:00:00:01" });
  await ovs.addPort(one);
  assert.deepEqual(theBed().devices(), ["tap-one"]);
  const [state] = (await ovs.ports()).filter(({ device }) => device === "tap-one");
  assert.ok(state?.ofport !== undefined && state.ofport > 0);
  assert.deepEqual({ ...state, ofport: 0 }, { ...one, ofport: 0, error: "" });
  assert.equal(theBed().vsctl("get", "Interface", "tap-one", "external_ids:iface-id"), "id-tap-one");
});

test(
  "addPort: the same port again gets the new ids; another one of that name is a collision, and nothing changes",
  options,
  async () => {
    const one = port("tap-two");
    await ovs.addPort(one);
    await ovs.addPort({ ...one, externalIds: { ...one.externalIds, "vm-id": "c2" } });
    assert.equal(theBed().vsctl("get", "Interface", "tap-two", "external_ids:vm-id"), "c2");
    await assert.rejects(ovs.addPort({ ...one, externalIds: { "iface-id": "other" } }), (error) => {
      assert.ok(isOvsdbError(error, "collision"), String(error));
      assert.match(error.message, /tap-two already, of id-tap-two; it should be free for other/);
      return true;
    });
    assert.equal(theBed().vsctl("get", "Interface", "tap-two", "external_ids:iface-id"), "id-tap-two");
  },
);

test("addPort: a bridge or a device that is not there is told by its code", options, async () => {
  const absent = { bridge: "br-none", device: "x", externalIds: { "iface-id": "x" } };
  await assert.rejects(ovs.addPort(absent), { code: "no-bridge", message: /no bridge br-none/ });
  await assert.rejects(ovs.addPort({ ...absent, bridge: "br-int", device: "no-such" }), {
    code: "not-plugged",
    message: /port no-such of br-int: .*no-such/,
  });
  await ovs.deletePort("no-such");
});

test("deletePort: removes one port; what is gone already, or belongs to another, is left alone", options, async () => {
  await ovs.addPort(port("tap-three"));
  await ovs.deletePort("tap-three", { only: { "vm-id": "another" } });
  assert.ok(theBed().devices().includes("tap-three"));
  await ovs.deletePort("tap-three", { only: { "vm-id": "c1" } });
  await ovs.deletePort("tap-three", { only: { "vm-id": "c1" } });
  assert.ok(!theBed().devices().includes("tap-three"));
  assert.deepEqual(
    (await ovs.ports()).filter(({ device }) => device === "tap-three"),
    [],
  );
});

test("externalIds: those of the switch, by which OVN's controller is set up", options, async () => {
  assert.equal(isOvn(await ovs.externalIds()), false);
  theBed().vsctl("set", "Open_vSwitch", ".", "external_ids:ovn-remote=tcp:192.0.2.1:6642");
  const ids = await ovs.externalIds();
  assert.deepEqual([ids["ovn-remote"], isOvn(ids)], ["tcp:192.0.2.1:6642", true]);
  theBed().vsctl("remove", "Open_vSwitch", ".", "external_ids", "ovn-remote");
  // Of several controllers on one host each has its own keys.
  assert.deepEqual(
    [
      { "ovn-remote-two": "tcp:192.0.2.2:6642" },
      { "ovn-remote": "" },
      { "ovn-remote-probe-interval": "60000" },
      {},
    ].map(isOvn),
    [true, false, false, false],
  );
});

test("bridges: each with its datapath and its controllers, and whether somebody answers there", options, async () => {
  const own = { name: "br-int", datapath: "netdev" };
  assert.deepEqual(await ovs.bridges(), [{ ...own, controllers: [] }]);
  theBed().vsctl("set-controller", "br-int", "tcp:127.0.0.1:6633", "tcp:127.0.0.1:6634");
  const [bridge] = await ovs.bridges();
  assert.deepEqual(
    bridge?.controllers.toSorted((one, other) => (one.target < other.target ? -1 : 1)),
    ["tcp:127.0.0.1:6633", "tcp:127.0.0.1:6634"].map((target) => ({ target, isConnected: false })),
  );
  theBed().vsctl("del-controller", "br-int");
});

test("watch: changes of ports are told, and the end of the database ends it", options, async () => {
  const controller = new AbortController();
  const told = [Promise.withResolvers<void>(), Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let count = 0;
  const watching = ovs.watch(() => told[count++]?.resolve(), { signal: controller.signal });
  await told[0]?.promise;
  await ovs.addPort(port("tap-four"));
  await told[1]?.promise;
  controller.abort(new Error("enough"));
  await assert.rejects(watching, /enough/);
  const second = ovs.watch(() => told[2]?.resolve(), { signal: new AbortController().signal });
  const ended = assert.rejects(second, (error) => isOvsdbError(error, "closed"));
  await told[2]?.promise;
  await theBed().stopDatabase();
  await ended;
  await assert.rejects(ovs.ports(), (error) => isOvsdbError(error, "unreachable"));
});
