import assert from "node:assert/strict";
import { test } from "node:test";
import { Cidr, IpAddress } from "#base/ip";
import type { ClientUse } from "./gateways.ts";
import { type HeldEgresses, keepClosed, NOTHING_HELD } from "./held.ts";

const D1 = "203.0.113.0/24";
const D2 = "198.51.100.0/24";
const cidrs = (texts: readonly string[]): Cidr[] => texts.map((text) => Cidr.parse(text));

function use(
  name: string,
  state: ClientUse["state"],
  destinations: readonly string[],
  by: ClientUse["by"] = "annotation",
  lacking: readonly string[] = [],
): ClientUse {
  const egress = { namespace: "internet", name };
  const gateway = {
    egress,
    by,
    address: IpAddress.parse("10.68.0.9"),
    destinations: cidrs(destinations),
    sourcePortAuto: false,
    originatingOnly: false,
  };
  const gateways = state === "ready" ? [gateway] : [];
  return { egress, by, state, destinations: cidrs([...destinations, ...lacking]), gateways, lacking: cidrs(lacking) };
}

/** Returns the state of a pod after these states, one after the other: its gateways, and the destinations that are closed by annotation and by selector. */
function after(...states: readonly (readonly ClientUse[])[]): string {
  let held: HeldEgresses = NOTHING_HELD;
  let text = "";
  for (const uses of states) {
    const wish = keepClosed(uses, held);
    if (!wish.isFrozen) held = wish.held;
    text = textOf(wish);
  }
  return text;
}

function textOf({ gateways, closed, isFrozen }: ReturnType<typeof keepClosed>): string {
  const parts = [
    gateways.map(({ egress, destinations }) => `${egress.name} ${destinations}`).join(),
    `closed ${closed.annotation}`.trim(),
    `by selector ${closed.selector}`.trim(),
    ...(isFrozen ? ["frozen"] : []),
  ];
  return parts.join("; ");
}

const NAMED = [use("a", "ready", [D1])];
const SELECTED = [use("a", "ready", [D1], "selector")];
const D6 = "2001:db8:9::/48";
const ONE_FAMILY = [use("a", "ready", [D1], "annotation", [D6])];
const ONE_FAMILY_SELECTED = [use("a", "ready", [D1], "selector", [D6])];

for (const [name, states, expected] of [
  [
    "a named Egress that is gone keeps its destinations closed",
    [NAMED, [use("a", "missing", [])]],
    `; closed ${D1}; by selector`,
  ],
  [
    "also through further comparisons",
    [NAMED, [use("a", "missing", [])], [use("a", "missing", [])]],
    `; closed ${D1}; by selector`,
  ],
  [
    "until it is there again, with the destinations that it has then",
    [NAMED, [use("a", "missing", [])], [use("a", "ready", [D2])]],
    `a ${D2}; closed; by selector`,
  ],
  ["or the annotation goes", [NAMED, [use("a", "missing", [])], []], "; closed; by selector"],
  ["a refused one closes what it has now", [NAMED, [use("a", "refused", [D2])]], `; closed ${D2}; by selector`],
  ["one that refuses a pod that never used it too", [[use("a", "refused", [D1])]], `; closed ${D1}; by selector`],
  ["one that never was opens and closes nothing", [[use("a", "missing", [])]], "; closed; by selector"],
  ["without its Service it keeps its tunnels", [NAMED, [use("a", "repairing", [D1])]], `a ${D1}; closed; by selector`],
  ["a pod of which nothing is known stays as it is", [[use("a", "repairing", [D1])]], "; closed; by selector; frozen"],
  [
    "unless another Egress refuses it",
    [[use("a", "repairing", [D1]), use("b", "refused", [D2])]],
    `; closed ${D2}; by selector`,
  ],
  ["a selector that goes keeps the destinations closed", [SELECTED, []], `; closed; by selector ${D1}`],
  ["as they were, whatever the Egress has later", [SELECTED, [], []], `; closed; by selector ${D1}`],
  [
    "until it selects the pod again",
    [SELECTED, [], [use("a", "ready", [D2], "selector")]],
    `a ${D2}; closed; by selector`,
  ],
  ["or an annotation names it", [SELECTED, [], NAMED], `a ${D1}; closed; by selector`],
  ["and is taken away", [SELECTED, [], NAMED, []], "; closed; by selector"],
  [
    "an edit of destinations opens what is left out",
    [[use("a", "ready", [D1, D2])], NAMED],
    `a ${D1}; closed; by selector`,
  ],
  ["a family that the Service lacks is closed beside the tunnels", [ONE_FAMILY], `a ${D1}; closed ${D6}; by selector`],
  ["also of one that selects the pod", [ONE_FAMILY_SELECTED], `a ${D1}; closed; by selector ${D6}`],
  [
    "also while the Service is gone",
    [ONE_FAMILY, [use("a", "repairing", [D1, D6])]],
    `a ${D1}; closed ${D6}; by selector`,
  ],
  ["until the Service has it", [ONE_FAMILY, [use("a", "ready", [D1, D6])]], `a ${D1},${D6}; closed; by selector`],
  ["or the pod is not selected any more", [ONE_FAMILY_SELECTED, []], `; closed; by selector ${D1},${D6}`],
  ["or the annotation goes from it", [ONE_FAMILY, []], "; closed; by selector"],
  [
    "and a pod of which nothing is known stays as it is beside it",
    [[use("b", "repairing", [D2]), ...ONE_FAMILY_SELECTED]],
    `a ${D1}; closed; by selector ${D6}; frozen`,
  ],
] as const) {
  test(`keepClosed: ${name}`, () => assert.equal(after(...states), expected));
}

test("keepClosed: after a restart a pod's own routes say what is closed of an Egress that is gone, and of one that selected it", () => {
  const found = { annotation: cidrs([D1, D2]), selector: cidrs(["8.8.8.0/24"]) };
  const held = { egresses: new Map(), found };
  const gone = keepClosed([use("a", "missing", []), use("b", "ready", [D2])], held);
  assert.equal(textOf(gone), `b ${D2}; closed ${D1}; by selector 8.8.8.0/24`);
  // Once nothing is missing, the routes of the annotations are the Egresses'.
  assert.equal(textOf(keepClosed([use("a", "ready", [D2])], gone.held)), `a ${D2}; closed; by selector 8.8.8.0/24`);
  assert.equal(textOf(keepClosed([], held)), "; closed; by selector 8.8.8.0/24");
});
