import assert from "node:assert/strict";
import { test } from "node:test";
import { auditChained } from "./audit-chained.ts";

const pod = (name: string, node: string) => ({ namespace: "ns", name, uid: `uid-${name}`, node });
const link = (podUid: string) => ({ podUid, ifname: "eth0", hostName: `veth-${podUid}` });

test("auditChained: each pod of the node has a mark, and each mark a pod of that node; other nodes' pods do not matter", () => {
  const nodes = [
    { node: "a", chained: [link("uid-1"), link("uid-2"), link("uid-4")] },
    { node: "b", chained: [] },
  ];
  const pods = [pod("1", "a"), pod("3", "a"), pod("4", "elsewhere"), pod("5", "elsewhere")];
  assert.deepEqual(
    auditChained(nodes, pods).map(({ kind, node, text }) => `${kind} ${node}: ${text}`),
    [
      "unmarked-pod a: no link has the mark of pod ns/3",
      "stray-mark a: link veth-uid-2 has the mark of pod UID uid-2, interface eth0, but that pod does not run on this node",
      "stray-mark a: link veth-uid-4 has the mark of pod UID uid-4, interface eth0, but that pod does not run on this node",
    ],
  );
  assert.deepEqual(auditChained([{ node: "a", chained: [link("uid-1"), link("uid-1")] }], [pod("1", "a")]), []);
});
