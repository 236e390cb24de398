import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { NicReportError } from "../errors.ts";
import { decodeNicNode } from "./codec.ts";
import type { NicNode } from "./state.ts";

const STATE: NicNode = {
  node: "n",
  claims: ["u"],
  sandboxes: [
    {
      containerId: "c",
      podUid: "u",
      netns: "/run/netns/s",
      isThere: true,
      nics: [
        {
          name: "eth0",
          portId: "p",
          kind: "neutron",
          isConfigured: true,
          mac: "fa:16:3e:00:00:01",
          mtu: 1450,
          addresses: ["10.0.0.5/24"],
          devices: [{ name: "qbrp" }, { name: "tapp", master: "qbrp" }],
          port: { ovsdb: "/db.sock", bridge: "br-int", device: "qvop", externalIds: { "iface-id": "p" } },
          differences: [],
          link: { isUp: true, mtu: 1450, addresses: [], routes: ["default via 10.0.0.1 dev eth0"], rules: [] },
        },
      ],
    },
  ],
  devices: [{ name: "tapp", isUp: true, master: "qbrp", portId: "p", containerId: "c" }],
  switches: [
    {
      ovsdb: "/db.sock",
      bridges: ["br-int"],
      ports: [{ bridge: "br-int", device: "qvop", externalIds: {}, ofport: 3, error: "" }],
    },
    { ovsdb: "/other.sock", fault: "away", bridges: [], ports: [] },
  ],
};

test("decodeNicNode: the state of a node comes back as it was", () => {
  assert.deepEqual(decodeNicNode(JSON.parse(JSON.stringify(STATE))), STATE);
});

test("decodeNicNode: of any JSON, and of a state with any part replaced, only NicReportError escapes", () => {
  const text = JSON.stringify(STATE);
  const decode = (json: unknown): void => {
    try {
      decodeNicNode(json);
    } catch (error) {
      assert.ok(error instanceof NicReportError, String(error));
      assert.match(error.message, /^the state of a node's NICs is malformed: /);
    }
  };
  fc.assert(fc.property(fc.jsonValue(), decode), { numRuns: 200 });
  const replaced = (at: number, by: unknown): unknown => {
    let seen = 0;
    return JSON.parse(text, (_key, part: unknown) => {
      seen += 1;
      return seen === at ? by : part;
    });
  };
  fc.assert(
    fc.property(fc.nat(90), fc.jsonValue(), (at, by) => decode(replaced(at, by))),
    { numRuns: 300 },
  );
});
