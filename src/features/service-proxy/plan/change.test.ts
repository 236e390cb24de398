import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { ByteString, ElementValue } from "#kernel/nft-elements";
import { SETS } from "../rules/index.ts";
import { changeFrontEnd } from "./change.ts";
import { type FrontEnd, NO_ENDPOINTS, type ObservedFrontEnd } from "./front-end.ts";
import { addressKey, allowKeys, endpointValue, portBytes, slotBytes } from "./keys.ts";

const KEY = addressKey(IpAddress.parse("10.96.0.1"), "TCP", 80);
const [A, B, C] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"].map((text) => endpointValue(IpAddress.parse(text), 8080)) as [
  ByteString,
  ByteString,
  ByteString,
];
const lb = (count: number): FrontEnd["verdict"] => ({ kind: "goto", chain: `lb-${count}` });

/** A front end at a cluster IP, with these endpoints. */
function frontEnd(slots: readonly ByteString[], changes: Partial<FrontEnd> = {}): FrontEnd {
  return {
    key: KEY,
    isNodePort: false,
    service: "ns/web:http/TCP",
    verdict: lb(slots.length),
    localVerdict: undefined,
    noEndpoints: false,
    slots,
    localSlots: [],
    affinitySeconds: 0,
    sourceRanges: undefined,
    ...changes,
  };
}

const WITHOUT_ENDPOINTS: Partial<FrontEnd> = { verdict: undefined, noEndpoints: true };

/** A batch that keeps its changes as text: `+set key`, `-set key`. */
class TextBatch {
  readonly lines: string[] = [];

  add(set: string, key: ByteString, value?: ElementValue): void {
    this.lines.push(`+${set}${nameOf(key)}${valueText(value)}`);
  }

  delete(set: string, key: ByteString): void {
    this.lines.push(`-${set}${nameOf(key)}`);
  }
}

/** The slot of an endpoint's key; empty for the key of the front end itself. */
function nameOf(key: ByteString): string {
  if (key === KEY || key === portBytes("TCP", 30_080)) return "";
  const range = ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"].find((one) => allowKeys(KEY, Cidr.parse(one))[0] === key);
  return range === undefined ? ` ${[0, 1, 2].find((slot) => key.endsWith(slotBytes(slot)))}` : ` ${range}`;
}

function valueText(value: ElementValue | undefined): string {
  if (typeof value === "object") return ` ${"chain" in value ? value.chain : value.kind}`;
  return value === undefined ? "" : ` ${{ [A]: "A", [B]: "B", [C]: "C" }[value]}`;
}

/** The changes of each phase. */
function change(before: ObservedFrontEnd | undefined, after: FrontEnd | undefined): Record<string, string> {
  const phases = { add: new TextBatch(), switch: new TextBatch(), remove: new TextBatch() };
  changeFrontEnd(before, after, phases as unknown as Parameters<typeof changeFrontEnd>[2]);
  const found = Object.entries(phases).filter(([, { lines }]) => lines.length > 0);
  return Object.fromEntries(found.map(([phase, { lines }]) => [phase, lines.join(", ")]));
}

const { serviceIps: VERDICTS, endpoints: EPS, noEndpoints: NOEP, localVerdicts: LOCAL } = SETS;

const ROWS: readonly (readonly [string, ObservedFrontEnd | undefined, FrontEnd | undefined, Record<string, string>])[] =
  [
    ["nothing changes", frontEnd([A, B]), frontEnd([A, B]), {}],
    ["nothing is there, and nothing is wanted", undefined, undefined, {}],
    [
      "a new front end: endpoints before the verdict",
      undefined,
      frontEnd([A, B]),
      { add: `+${EPS} 0 A, +${EPS} 1 B`, switch: `+${VERDICTS} lb-2` },
    ],
    [
      "a front end that goes: the verdict before the endpoints",
      frontEnd([A, B]),
      undefined,
      { switch: `-${VERDICTS}`, remove: `-${EPS} 0, -${EPS} 1` },
    ],
    [
      "one more endpoint",
      frontEnd([A]),
      frontEnd([A, B]),
      { add: `+${EPS} 1 B`, switch: `-${VERDICTS}, +${VERDICTS} lb-2` },
    ],
    [
      "one endpoint less: the last one moves into its slot",
      frontEnd([A, B]),
      frontEnd([B]),
      { add: `-${EPS} 0, +${EPS} 0 B`, switch: `-${VERDICTS}, +${VERDICTS} lb-1`, remove: `-${EPS} 1` },
    ],
    ["a replaced endpoint is one slot", frontEnd([A, B]), frontEnd([A, C]), { add: `-${EPS} 1, +${EPS} 1 C` }],
    ["an observed order that is not the plan's stays", frontEnd([B, A]), frontEnd([A, B]), {}],
    [
      "a hole in the observed slots is filled",
      { ...frontEnd([A, B]), slots: [undefined, B] },
      frontEnd([A, B]),
      { add: `+${EPS} 0 A` },
    ],
    [
      "from some endpoints to none: rejected as the verdict goes, slots later",
      frontEnd([A]),
      frontEnd([], WITHOUT_ENDPOINTS),
      {
        switch: `-${VERDICTS}, +${NOEP} ${NO_ENDPOINTS.kind === "goto" ? NO_ENDPOINTS.chain : ""}`,
        remove: `-${EPS} 0`,
      },
    ],
    [
      "from none to some: endpoints first, then the verdict instead of the reject",
      frontEnd([], WITHOUT_ENDPOINTS),
      frontEnd([A]),
      { add: `+${EPS} 0 A`, switch: `+${VERDICTS} lb-1, -${NOEP}` },
    ],
    [
      "a local verdict is removed only after the verdict that leads to it",
      frontEnd([A], { localVerdict: lb(1) }),
      frontEnd([A]),
      { remove: `-${LOCAL}` },
    ],
    ["affinity is switched on", frontEnd([A]), frontEnd([A], { affinitySeconds: 60 }), { switch: "+affinity-60" }],
    [
      "another affinity timeout",
      frontEnd([A], { affinitySeconds: 60 }),
      frontEnd([A], { affinitySeconds: 90 }),
      { switch: "-affinity-60, +affinity-90" },
    ],
    [
      "source ranges: allowed before they are checked",
      frontEnd([A]),
      frontEnd([A], { sourceRanges: ["10.0.0.0/8"] }),
      { add: `+${SETS.firewallAllow} 10.0.0.0/8`, switch: `+${SETS.firewallVips}` },
    ],
    [
      "source ranges that go: no check before they are removed",
      frontEnd([A], { sourceRanges: ["10.0.0.0/8"] }),
      frontEnd([A]),
      { switch: `-${SETS.firewallVips}`, remove: `-${SETS.firewallAllow} 10.0.0.0/8` },
    ],
    [
      "a range that overlaps an old one replaces it in the same transaction",
      frontEnd([A], { sourceRanges: ["10.0.0.0/8"] }),
      frontEnd([A], { sourceRanges: ["10.1.0.0/16"] }),
      { add: `-${SETS.firewallAllow} 10.0.0.0/8, +${SETS.firewallAllow} 10.1.0.0/16` },
    ],
    [
      "a range that overlaps none is removed later",
      frontEnd([A], { sourceRanges: ["192.0.2.0/24"] }),
      frontEnd([A], { sourceRanges: ["10.0.0.0/8"] }),
      { add: `+${SETS.firewallAllow} 10.0.0.0/8`, remove: `-${SETS.firewallAllow} 192.0.2.0/24` },
    ],
    [
      "a NodePort is in the sets of NodePorts",
      undefined,
      frontEnd([A], { key: portBytes("TCP", 30_080), isNodePort: true, affinitySeconds: 60 }),
      { add: "+np-eps 0 A", switch: "+np-affinity-60, +service-nodeports lb-1" },
    ],
  ];

for (const [name, before, after, expected] of ROWS) {
  test(`changeFrontEnd: ${name}`, () => assert.deepEqual(change(before, after), expected));
}

test("changeFrontEnd: returns the plan with the slots that the kernel then has", () => {
  const phases = { add: new TextBatch(), switch: new TextBatch(), remove: new TextBatch() };
  const args = phases as unknown as Parameters<typeof changeFrontEnd>[2];
  const plan = frontEnd([A, B]);
  assert.equal(changeFrontEnd(frontEnd([A]), plan, args), plan);
  assert.deepEqual(changeFrontEnd(frontEnd([B]), plan, args)?.slots, [B, A]);
  assert.equal(changeFrontEnd(plan, undefined, args), undefined);
});
