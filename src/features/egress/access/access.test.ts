import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import type { Egress, EgressSpec } from "#kube/coil";
import { egressNames } from "#kube/coil";
import { type AccessNamespace, type AccessPod, egressAccess, egressUse, refusalText } from "./access.ts";
import { AccessIndex } from "./uses.ts";

type Rules = Partial<Pick<EgressSpec, "allowedNamespaces" | "clients">>;

function egress(rules: Rules, ref = { namespace: "internet", name: "nat" }): Egress {
  return { metadata: { ...ref, uid: "u", resourceVersion: "1" }, spec: { destinations: ["0.0.0.0/0"], ...rules } };
}

function pod(namespace: string, names: string, labels: Record<string, string> = {}): AccessPod {
  return { namespace, labels, named: egressNames({ "egress.coil.cybozu.com/internet": names }) };
}

function namespaceOf(name: string, labels: Record<string, string> = {}, clientsOf?: string): AccessNamespace {
  return { name, labels, clientsOf };
}

const textOf = (use: ReturnType<typeof egressUse>): string =>
  use.kind === "none" ? "none" : `${use.kind} ${use.by}${use.kind === "refused" ? ` ${use.reason}` : ""}`;

const TENANT = namespaceOf("tenant", { tier: "gold" });
const GOLD = { selector: { matchLabels: { tier: "gold" } } };
const ALL_PODS = [{ namespaceSelector: {}, podSelector: {} }];
const ROUTER = {
  "app.kubernetes.io/name": "coil",
  "app.kubernetes.io/component": "egress",
  "app.kubernetes.io/instance": "nat",
};

for (const [name, rules, one, namespace, expected] of [
  ["without rules everybody may name an Egress", {}, pod("tenant", "nat"), undefined, "client annotation"],
  ["a pod that does not name it is none", {}, pod("tenant", "other"), TENANT, "none"],
  [
    "a named namespace may",
    { allowedNamespaces: { names: ["tenant"] } },
    pod("tenant", "nat"),
    undefined,
    "client annotation",
  ],
  [
    "another may not",
    { allowedNamespaces: { names: ["b"] } },
    pod("tenant", "nat"),
    TENANT,
    "refused annotation namespace-not-allowed",
  ],
  [
    "an empty list allows the own namespace alone",
    { allowedNamespaces: {} },
    pod("tenant", "nat"),
    TENANT,
    "refused annotation namespace-not-allowed",
  ],
  ["the own namespace always may", { allowedNamespaces: {} }, pod("internet", "nat"), undefined, "client annotation"],
  ["a selected namespace may", { allowedNamespaces: GOLD }, pod("tenant", "nat"), TENANT, "client annotation"],
  [
    "one with other labels may not",
    { allowedNamespaces: GOLD },
    pod("tenant", "nat"),
    namespaceOf("tenant"),
    "refused annotation namespace-not-allowed",
  ],
  [
    "an unknown one may not yet",
    { allowedNamespaces: GOLD },
    pod("tenant", "nat"),
    undefined,
    "refused annotation namespace-unknown",
  ],
  [
    "names and selector are alternatives",
    { allowedNamespaces: { names: ["tenant"], ...GOLD } },
    pod("tenant", "nat"),
    namespaceOf("tenant"),
    "client annotation",
  ],
  [
    "a selector that cannot be read allows nobody",
    { allowedNamespaces: { selector: { matchExpressions: [{ key: "a", operator: "In", values: [] }] } } },
    pod("tenant", "nat"),
    TENANT,
    "refused annotation namespace-not-allowed",
  ],
  ["a router uses none", {}, pod("tenant", "nat", ROUTER), TENANT, "none"],
  ["a router is not selected", { clients: ALL_PODS }, pod("internet", "", ROUTER), namespaceOf("internet"), "none"],
  [
    "an entry without a namespaceSelector reaches the own namespace",
    { clients: [{ podSelector: { matchLabels: { app: "a" } } }] },
    pod("internet", "", { app: "a" }),
    undefined,
    "client selector",
  ],
  [
    "also beside one with a namespaceSelector",
    { clients: [{ podSelector: { matchLabels: { app: "a" } } }, { namespaceSelector: {}, podSelector: {} }] },
    pod("internet", "", { app: "a" }),
    undefined,
    "client selector",
  ],
  [
    "which alone admits no pod of an unknown Namespace",
    { clients: [{ podSelector: { matchLabels: { app: "a" } } }, { namespaceSelector: {}, podSelector: {} }] },
    pod("internet", "", { app: "b" }),
    undefined,
    "refused selector namespace-unknown",
  ],
  [
    "and only pods with the labels",
    { clients: [{ podSelector: { matchLabels: { app: "a" } } }] },
    pod("internet", "", { app: "b" }),
    namespaceOf("internet"),
    "none",
  ],
  ["and no other namespace", { clients: [{}] }, pod("tenant", ""), namespaceOf("tenant", {}, "internet/nat"), "none"],
  [
    "another namespace is selected only if it consents",
    { clients: ALL_PODS },
    pod("tenant", ""),
    TENANT,
    "refused selector no-consent",
  ],
  [
    "by the name of the Egress",
    { clients: ALL_PODS },
    pod("tenant", ""),
    namespaceOf("tenant", {}, "x/y, internet/nat"),
    "client selector",
  ],
  [
    "or of its namespace",
    { clients: ALL_PODS },
    pod("tenant", ""),
    namespaceOf("tenant", {}, "internet/*"),
    "client selector",
  ],
  [
    "not by a wider text",
    { clients: ALL_PODS },
    pod("tenant", ""),
    namespaceOf("tenant", {}, "*/*,*,internet,internet/na"),
    "refused selector no-consent",
  ],
  [
    "an unknown Namespace does not consent",
    { clients: ALL_PODS },
    pod("tenant", ""),
    undefined,
    "refused selector namespace-unknown",
  ],
  [
    "a selected pod needs the permission too",
    { clients: ALL_PODS, allowedNamespaces: {} },
    pod("tenant", ""),
    namespaceOf("tenant", {}, "internet/*"),
    "refused selector namespace-not-allowed",
  ],
  ["an annotation needs no consent", { clients: ALL_PODS }, pod("tenant", "nat"), TENANT, "client annotation"],
  [
    "labels that every object has as members match nothing",
    { clients: [{ podSelector: { matchExpressions: [{ key: "constructor", operator: "Exists" }] } }] },
    pod("internet", ""),
    namespaceOf("internet"),
    "none",
  ],
] as const) {
  test(`egressUse: ${name}`, () => {
    assert.equal(textOf(egressUse(egressAccess(egress(rules as Rules)), one, namespace)), expected);
  });
}

test("refusalText: names the Egress, the namespace, the field and whom to ask, in one line", () => {
  const ref = { namespace: "internet", name: "nat" };
  for (const [by, reason, field] of [
    ["annotation", "namespace-not-allowed", "spec.allowedNamespaces"],
    ["annotation", "namespace-unknown", "spec.allowedNamespaces"],
    ["selector", "no-consent", "metadata.annotations[isthmus.dev/egress-clients-of]"],
  ] as const) {
    const text = refusalText(ref, "tenant", { by, reason });
    for (const part of ['"internet/nat"', '"tenant"', field]) assert.ok(text.includes(part), text);
    if (reason !== "namespace-unknown") assert.match(text, /: ask those who manage /);
    assert.ok(text.length < 500 && !text.includes("\n"), text);
  }
});

const label = fc.constantFrom("a", "b");
const labels = fc.dictionary(label, label, { maxKeys: 2 });
const selector = fc.record(
  {
    matchLabels: labels,
    matchExpressions: fc.array(
      fc.record({
        key: label,
        operator: fc.constantFrom("In", "NotIn", "Exists", "DoesNotExist"),
        values: fc.array(label, { maxLength: 2 }),
      }),
      { maxLength: 2 },
    ),
  },
  { requiredKeys: [] },
);
const namespaceName = fc.constantFrom("internet", "tenant", "other");
const rulesArbitrary = fc.record(
  {
    allowedNamespaces: fc.record({ names: fc.array(namespaceName, { maxLength: 2 }), selector }, { requiredKeys: [] }),
    clients: fc.array(fc.record({ namespaceSelector: selector, podSelector: selector }, { requiredKeys: [] }), {
      maxLength: 3,
    }),
  },
  { requiredKeys: [] },
);

test("AccessIndex: tells what egressUse tells of each Egress, annotated ones first, also after changes", () => {
  const names = ["nat", "dmz"];
  const world = fc.record({
    rules: fc.tuple(rulesArbitrary, rulesArbitrary),
    owner: fc.tuple(namespaceName, namespaceName),
    pods: fc.array(
      fc.record({ namespace: namespaceName, labels, names: fc.constantFrom("", "nat", "dmz", "nat,dmz") }),
      { maxLength: 4 },
    ),
    namespaces: fc.array(
      fc.record({
        name: namespaceName,
        labels,
        clientsOf: fc.option(fc.constantFrom("internet/*", "tenant/nat"), { nil: undefined }),
      }),
      { maxLength: 3 },
    ),
  });
  let accesses: ReturnType<typeof egressAccess>[] = [];
  const index = new AccessIndex({
    get: (ref) => accesses.find((one) => one.namespace === ref.namespace && one.name === ref.name),
    all: () => accesses,
  });
  fc.assert(
    fc.property(world, ({ rules, owner, pods, namespaces }) => {
      accesses = rules.map((one, at) =>
        egressAccess(egress(one as Rules, { namespace: owner[at] ?? "internet", name: names[at] ?? "" })),
      );
      index.changed();
      for (const { names: named, ...of } of pods) {
        const one = pod(of.namespace, named, of.labels);
        const namespace = namespaces.find(({ name }) => name === one.namespace);
        const uses = index.usesOf(one, namespace);
        const expected = accesses
          .map((access) => [`${access.namespace}/${access.name}`, textOf(egressUse(access, one, namespace))] as const)
          .filter(([, text]) => text !== "none");
        const found = uses.map(({ egress: { namespace: of, name }, use }) => [`${of}/${name}`, textOf(use)] as const);
        assert.deepEqual(new Map(found), new Map(expected));
        const order = uses.map(({ use }) => (use.by === "annotation" ? 0 : 1));
        assert.deepEqual(
          order,
          order.toSorted((a, b) => a - b),
        );
      }
    }),
  );
});

test("AccessIndex: 5,000 pods and 100 Egresses cost comparisons of namespaces once, not for each pod", () => {
  let compared = 0;
  const base = egressAccess(egress({ clients: ALL_PODS }));
  const counting = (name: string): typeof base => ({
    ...base,
    name,
    entries: base.entries.map(({ selectsPod }) => ({
      selectsNamespace: () => {
        compared += 1;
        return name === "nat-0";
      },
      selectsPod,
    })),
  });
  const accesses = Array.from({ length: 100 }, (_, at) => counting(`nat-${at}`));
  const index = new AccessIndex({ get: () => undefined, all: () => accesses });
  const namespaces = Array.from({ length: 10 }, (_, at) => namespaceOf(`ns-${at}`, {}, "internet/*"));
  for (let at = 0; at < 5000; at += 1) {
    const namespace = namespaces[at % 10];
    assert.equal(index.usesOf(pod(namespace?.name ?? "", ""), namespace).length, 1);
  }
  assert.equal(compared, 1000);
});
