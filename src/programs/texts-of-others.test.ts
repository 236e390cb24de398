// What programs print for people names objects, conditions, events and errors of others: none of it begins a line or draws on a terminal.
import assert from "node:assert/strict";
import { test } from "node:test";
import { doctorText } from "#base/diagnosis";
import { explainNicsText, nicRowsText, traceText } from "#features/nic-report";
import { auditText } from "./tools/audit/program.ts";
import { answerText } from "./tools/explain/whole-answer.ts";

const FOREIGN = "a\u001b]0;title\u0007\u009b31m\r\nok       all is well\u2028\u202eb\ud800";

const packet = { source: FOREIGN, destination: FOREIGN, port: 1, protocol: "TCP" };
const explanation = {
  ...{ node: FOREIGN, table: "ip kube-proxy", from: FOREIGN, packet, service: FOREIGN, steps: [], notes: [FOREIGN] },
  outcome: "dropped" as const,
  arrivals: [],
};
const TEXTS: Readonly<Record<string, readonly [text: string, lines: number]>> = {
  doctor: [doctorText([{ state: "wrong", subject: FOREIGN, text: FOREIGN, remedy: FOREIGN }]), 3],
  audit: [
    auditText({
      findings: [{ kind: "missing-route", node: FOREIGN, text: FOREIGN } as never],
      checked: { nodes: 1, blocks: 0, pods: 0, links: 0, exportedRoutes: 0 } as never,
      notes: [FOREIGN],
    }),
    3,
  ],
  explain: [answerText({ explanation, inPod: { kind: "not-read", why: FOREIGN } as never }), 7],
  "explain NICs": [
    explainNicsText({
      namespace: FOREIGN,
      pod: FOREIGN,
      vpc: FOREIGN,
      provider: FOREIGN,
      nics: [],
      notes: [FOREIGN],
    } as never),
    3,
  ],
  "nicctl status": [
    nicRowsText([
      {
        ...{ namespace: FOREIGN, pod: FOREIGN, nic: FOREIGN, state: "NoClaim", phase: FOREIGN, port: FOREIGN },
        ...{ addresses: [FOREIGN], node: FOREIGN, reason: FOREIGN, message: FOREIGN },
      },
    ]),
    2,
  ],
  "nicctl trace": [
    traceText({
      namespace: FOREIGN,
      pod: FOREIGN,
      uid: FOREIGN,
      nics: [],
      events: [{ at: "x", reason: FOREIGN, count: 1, note: FOREIGN }],
    }),
    4,
  ],
};

for (const [name, [text, lines]] of Object.entries(TEXTS))
  test(`${name}: texts of others begin no line, and draw nothing on the terminal`, () => {
    assert.doesNotMatch(text, /[^\P{Cc}\n]|[\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/u);
    assert.equal(text.trimEnd().split("\n").length, lines, text);
    assert.match(text, /\\u001b\]0;title\\u0007\\u009b31m\\r\\nok/);
  });
