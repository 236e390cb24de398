import assert from "node:assert/strict";
import { test } from "node:test";
import { auditText } from "./program.ts";

const CHECKED = { nodes: 1, blocks: 2, pods: 3, links: 3, exportedRoutes: 2 };
const EGRESS = { egresses: 1, clients: 2, routers: 1, clientsElsewhere: 0, routersElsewhere: 0 };

test("auditText: the last line says what was compared, and lines before it what was found and what was not compared", () => {
  const none = { findings: [], notes: [] };
  const agree =
    "no findings: API server, kernel and memory agree on 1 nodes, 2 blocks, 3 pods, 3 links, 2 exported routes";
  assert.equal(auditText({ ...none, checked: CHECKED }), `${agree}\n`);
  assert.equal(
    auditText({ ...none, checked: { ...CHECKED, egress: EGRESS } }),
    `${agree}, 1 Egresses, 2 clients, 1 routers\n`,
  );
  const nics = { claims: 2, ports: 3, nics: 4, claimsElsewhere: 0 };
  assert.equal(
    auditText({ ...none, checked: { ...CHECKED, nics } }),
    `${agree}, 2 NicClaims, 3 ports, 4 plugged NICs\n`,
  );
  assert.equal(
    auditText({ ...none, checked: { ...CHECKED, nodes: 0, nics: { ...nics, claimsElsewhere: 1 } } }),
    "note: the NICs of 1 NicClaims were not compared with their nodes: run audit there too, or name the sockets of nic-agent there\nno findings: API server, kernel and memory agree on 2 NicClaims, 3 ports, 4 plugged NICs\n",
  );
  const finding = { kind: "client-lacks", node: "n", text: "pod ns/p lacks a rule" } as const;
  const cluster = { kind: "egress-service", node: undefined, text: "there is none" } as const;
  const lines = auditText({
    findings: [finding, cluster],
    checked: { ...CHECKED, egress: { ...EGRESS, clientsElsewhere: 4 } },
    notes: ["Deployments are not compared"],
  }).split("\n");
  assert.deepEqual(lines.slice(0, 3), [
    "client-lacks  n: pod ns/p lacks a rule",
    "egress-service  cluster: there is none",
    "note: Deployments are not compared",
  ]);
  assert.match(lines[3] ?? "", /^note: 4 clients and 0 routers were not compared: run audit on their nodes too/);
  assert.match(lines[4] ?? "", /^2 findings among 1 nodes, /);
});
