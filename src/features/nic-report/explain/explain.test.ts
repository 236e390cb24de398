import assert from "node:assert/strict";
import { test } from "node:test";
import type { VpcPort } from "#cloud/vpc";
import type { NicNode } from "../audit/state.ts";
import { READY_NIC, testClaim, UID } from "../testing.ts";
import { type ExplainNicsInput, explainNics, explainNicsText } from "./explain.ts";

const ID = READY_NIC.portID ?? "";
const PORT = { id: ID, status: "ACTIVE", securityGroups: ["sg-1", "sg-2"] } as unknown as VpcPort;
const NODE: NicNode = {
  node: "node-1",
  claims: [UID],
  devices: [],
  sandboxes: [
    {
      containerId: "c",
      podUid: UID,
      netns: "/run/netns/s",
      isThere: true,
      nics: [
        {
          name: "eth0",
          portId: ID,
          kind: "neutron",
          isConfigured: true,
          addresses: [],
          devices: [{ name: "qbr1" }, { name: "qvb1" }, { name: "qvo1" }, { name: "tap1" }],
          port: { ovsdb: "/db.sock", bridge: "br-int", device: "qvo1", externalIds: {} },
          differences: ["eth0 is down"],
          link: {
            isUp: false,
            mtu: 1450,
            addresses: [],
            routes: ["default via 10.0.0.1 dev eth0"],
            rules: ["20001: x"],
          },
        },
      ],
    },
  ],
  switches: [
    {
      ovsdb: "/db.sock",
      bridges: ["br-int"],
      ports: [{ bridge: "br-int", device: "qvo1", externalIds: {}, ofport: 7, error: "" }],
    },
  ],
};
const planned: ExplainNicsInput["planned"] = () => ({
  routes: ["default via 10.0.0.1 dev eth0 metric 100"],
  rules: [],
});

test("explainNics: from the provider's port through switch and devices to routes and rules that are there", () => {
  const claim = testClaim([{ ...READY_NIC, mac: "fa:16:3e:00:00:01", mtu: 1450 }]);
  const answer = explainNics({ claim, ports: new Map([[ID, PORT]]), node: NODE, planned, notes: [] });
  assert.equal(
    explainNicsText(answer),
    `pod ns/a: VPC vpc-1 of provider neutron, on node node-1

eth0: Ready
  port      ${ID}, made by nic-controller; ACTIVE at the provider
            10.0.0.5/24; MAC fa:16:3e:00:00:01; MTU 1450
  security  the port has the groups sg-1, sg-2, whose rules the provider has
  binding   to host node-1, as ovs
  plugged   br-int port 7 - qvo1 - qvb1 - qbr1 - tap1 - /run/netns/s
            differs: eth0 is down
  routes    default via 10.0.0.1 dev eth0
  rules     20001: x
`,
  );
});

test("explainNics: without provider and node it tells what the claim leads to, and what was not looked at", () => {
  const failed = { name: "eth1", state: "Failed", reason: "IpInUse", message: "10.0.0.9 is of port x" } as const;
  const claim = testClaim([READY_NIC, failed]);
  const answer = explainNics({ claim, ports: undefined, node: undefined, planned, notes: ["no credentials"] });
  const text = explainNicsText(answer);
  for (const line of [
    /^ {2}port +30b6911d\S+, made by nic-controller; the provider was not asked$/m,
    /^ {2}security +the pod names no group, so the policy's or the provider's default ones/m,
    /^ {2}routes \(planned\) {2}default via 10\.0\.0\.1 dev eth0 metric 100$/m,
    /^eth1: Failed$/m,
    /^ {2}reason +IpInUse: 10\.0\.0\.9 is of port x$/m,
    /^ +remedy: the NIC gets the address when its holder gives it back/m,
    /^ {2}port +none yet$/m,
    /^note: no credentials$/m,
  ])
    assert.match(text, line);
  const given = testClaim([{ ...READY_NIC, securityGroups: ["sg-9"] }]);
  assert.match(
    explainNicsText(explainNics({ claim: given, ports: undefined, node: undefined, planned, notes: [] })),
    /security +the port was given sg-9 last; the provider was not asked/,
  );
  const missing = explainNics({ claim, ports: new Map(), node: undefined, planned, notes: [] });
  assert.equal(missing.nics[0]?.port?.status, "missing");
});
