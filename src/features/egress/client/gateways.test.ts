import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { Cidr, IpAddress } from "#base/ip";
import type { Service } from "#kube/client";
import type { Egress } from "#kube/coil";
import { egressAccess, usesFrom } from "../access/index.ts";
import {
  clientEgress,
  clientService,
  type EgressSource,
  faultText,
  gatewaysOf,
  isBeingRepaired,
  isMissing,
  isObjectRef,
  type UsingPod,
} from "./gateways.ts";

const LABELS = { "app.kubernetes.io/name": "coil", "app.kubernetes.io/component": "egress" };

function egress(name: string, destinations: readonly string[], fouSourcePortAuto = false): Egress {
  const metadata = { namespace: "internet", name, uid: name, resourceVersion: "1" };
  return { metadata, spec: { destinations, fouSourcePortAuto } } as unknown as Egress;
}

function service(name: string, clusterIPs: readonly string[], labels: Record<string, string> = LABELS): Service {
  const metadata = { namespace: "internet", name, uid: name, resourceVersion: "1", labels };
  return { metadata, spec: { clusterIPs } } as unknown as Service;
}

function sourceOf(egresses: readonly Egress[], services: readonly Service[]): EgressSource {
  const isOf =
    (ref: { readonly namespace: string; readonly name: string }) =>
    (one: Egress | Service): boolean =>
      one.metadata.name === ref.name && one.metadata.namespace === ref.namespace;
  return {
    egress: (ref) => egresses.filter(isOf(ref)).map(clientEgress)[0],
    service: (ref) => services.filter(isOf(ref)).map(clientService)[0],
    usesOf: usesFrom(
      egresses.map((one) => egressAccess(one)),
      (name) => ({ name, labels: { tier: "gold" }, clientsOf: "internet/*" }),
    ),
  };
}

const NOT_ONLY = { originatingOnly: false };

const podOf = (annotations: Record<string, string>): UsingPod => ({ namespace: "tenant", annotations });
const naming = (names: string): Record<string, string> => ({ "egress.coil.cybozu.com/internet": names });
const lines = ({ gateways, uses, faults }: ReturnType<typeof gatewaysOf>): string[] => [
  ...gateways.map((one) => `${one.egress.name} ${one.address} ${one.destinations.join(",")} ${one.sourcePortAuto}`),
  ...faults.map(({ egress: { name }, why, family, destination }) =>
    `${name} ${why} ${family ?? destination ?? ""}`.trim(),
  ),
  ...uses.flatMap(({ egress: { name }, lacking }) => (lacking.length === 0 ? [] : [`${name} closes ${lacking}`])),
];

test("clientEgress: an Egress without a spec, which its CRD lets pass, has no destinations", () => {
  const { metadata } = egress("bare", []);
  for (const bare of [{ metadata }, { metadata, spec: null }]) {
    const { destinations, wrong, sourcePortAuto, originatingOnly } = clientEgress(bare as unknown as Egress);
    assert.deepEqual([destinations, wrong, sourcePortAuto, originatingOnly], [[], [], false, undefined]);
  }
});

for (const { name, annotations, egresses, services, families, expected } of [
  {
    name: "each family has its destinations and its address of the Service",
    annotations: naming(" nat , nat"),
    egresses: [egress("nat", ["0.0.0.0/0", "::/0", "172.20.0.0/16"], true)],
    services: [service("nat", ["10.68.0.9", "fd03::9"])],
    expected: ["nat 10.68.0.9 0.0.0.0/0,172.20.0.0/16 true", "nat fd03::9 ::/0 true"],
  },
  {
    name: "a family that the pod lacks is told",
    annotations: naming("nat"),
    egresses: [egress("nat", ["0.0.0.0/0", "::/0"])],
    services: [service("nat", ["10.68.0.9"])],
    families: [4] as const,
    expected: ["nat 10.68.0.9 0.0.0.0/0 false", "nat no-pod-address 6"],
  },
  {
    name: "a family that the Service lacks is told, and its destinations are to be closed",
    annotations: naming("nat"),
    egresses: [egress("nat", ["0.0.0.0/0", "::/0"])],
    services: [service("nat", ["10.68.0.9"])],
    expected: ["nat 10.68.0.9 0.0.0.0/0 false", "nat no-service-address 6", "nat closes ::/0"],
  },
  {
    name: "missing Egresses and Services are told, the others stay",
    annotations: naming("gone,early,nat,headless,foreign"),
    egresses: [egress("nat", ["0.0.0.0/0"]), ...["early", "headless", "foreign"].map((one) => egress(one, ["::/0"]))],
    services: [
      service("nat", ["10.68.0.9"]),
      service("headless", ["None"]),
      service("foreign", ["10.68.0.10"], { app: "web" }),
    ],
    expected: [
      "nat 10.68.0.9 0.0.0.0/0 false",
      "early no-service",
      "foreign no-service-address",
      "gone no-egress",
      "headless no-service-address",
    ],
  },
  {
    name: "an Egress that has lost its spec is told, whether or not it has a Service, and the others stay",
    annotations: naming("bare,early,nat"),
    egresses: [
      egress("nat", ["0.0.0.0/0"]),
      ...["bare", "early"].map((one) => ({ ...egress(one, []), spec: undefined }) as unknown as Egress),
    ],
    services: [service("nat", ["10.68.0.9"]), service("bare", ["10.68.0.10"])],
    expected: ["nat 10.68.0.9 0.0.0.0/0 false", "bare no-destinations", "early no-destinations"],
  },
  {
    name: "a destination that is not a CIDR is told, the others stay",
    annotations: naming("nat"),
    egresses: [egress("nat", ["nonsense", "203.0.113.0/24", "10.0.0.0/64"])],
    services: [service("nat", ["10.68.0.9"])],
    expected: [
      "nat 10.68.0.9 203.0.113.0/24 false",
      "nat wrong-destination nonsense",
      "nat wrong-destination 10.0.0.0/64",
    ],
  },
  {
    name: "a destination with leading zeros is told: some read them as octal",
    annotations: naming("nat"),
    egresses: [egress("nat", ["203.0.113.0/24", "203.0.113.0/24", "010.2.3.0/24"])],
    services: [service("nat", ["10.68.0.9"])],
    expected: ["nat 10.68.0.9 203.0.113.0/24 false", "nat wrong-destination 010.2.3.0/24"],
  },
  {
    name: "other annotations name nothing",
    annotations: { "egress.coil.cybozu.com": "nat", "x/egress.coil.cybozu.com/internet": "nat" },
    egresses: [egress("nat", ["0.0.0.0/0"])],
    services: [service("nat", ["10.68.0.9"])],
    expected: [],
  },
]) {
  test(`gatewaysOf: ${name}`, () => {
    assert.deepEqual(
      lines(gatewaysOf(podOf(annotations), sourceOf(egresses, services), families ?? [4, 6], NOT_ONLY)),
      expected,
    );
  });
}

test("gatewaysOf: a refusal closes a named Egress with the destinations that it has, a selecting one comes after those that are named, and one that may not select is left out", () => {
  const restricted = egress("gold", ["8.8.8.0/24"]);
  Object.assign(restricted.spec ?? {}, { allowedNamespaces: {} });
  const all = egress("all", ["0.0.0.0/0"]);
  Object.assign(all.spec ?? {}, { clients: [{ namespaceSelector: {} }] });
  const foreign = {
    ...egress("foreign", ["::/0"]),
    metadata: { ...all.metadata, namespace: "other", name: "foreign" },
  };
  Object.assign(foreign.spec ?? {}, { clients: [{ namespaceSelector: {} }] });
  const source = sourceOf(
    [all, egress("nat", ["203.0.113.0/24"]), restricted, foreign],
    ["all", "nat", "gold"].map((name) => service(name, ["10.68.0.9"])),
  );
  const { gateways, uses, faults } = gatewaysOf(podOf(naming("nat,gold")), source, [4], NOT_ONLY);
  assert.deepEqual(
    uses.map(({ egress: { name }, by, state, destinations }) => `${name} ${by} ${state} ${destinations}`),
    ["gold annotation refused 8.8.8.0/24", "nat annotation ready 203.0.113.0/24", "all selector ready 0.0.0.0/0"],
  );
  assert.deepEqual(
    gateways.map(({ egress: { name }, by }) => [name, by]),
    [
      ["nat", "annotation"],
      ["all", "selector"],
    ],
  );
  assert.deepEqual(
    faults.map(({ why, reason }) => [why, reason]),
    [["refused", "namespace-not-allowed"]],
  );
  assert.match(faults.map(faultText).join(), /^Egress "internet\/gold" does not allow pods of namespace "tenant"/);
});

test("gatewaysOf: of annotations with any text it asks only for names that objects can have, and every fault is one short sentence", () => {
  const key = fc.oneof(
    fc.string().map((text) => `egress.coil.cybozu.com/${text}`),
    fc.constant("egress.coil.cybozu.com/internet"),
    fc.string(),
  );
  const value = fc.oneof(
    fc.string(),
    fc.array(fc.oneof(fc.string(), fc.constant("nat"))).map((all) => all.join(",")),
  );
  const destinations = fc.array(fc.oneof(fc.string(), fc.constantFrom("0.0.0.0/0", "::/0")));
  fc.assert(
    fc.property(fc.dictionary(key, value), destinations, fc.array(fc.string()), (annotations, texts, clusterIPs) => {
      const asked: { readonly namespace: string; readonly name: string }[] = [];
      const { gateways, faults } = gatewaysOf(
        podOf(annotations),
        {
          usesOf: () => [],
          egress: (ref) => {
            asked.push(ref);
            return ref.name === "nat" ? clientEgress(egress("nat", texts)) : undefined;
          },
          service: () => clientService(service("nat", ["10.68.0.9", ...clusterIPs])),
        },
        [4, 6],
        NOT_ONLY,
      );
      assert.ok(asked.every(isObjectRef), JSON.stringify(asked));
      for (const { address, destinations: own } of gateways) {
        assert.ok(own.length > 0 && own.every((one) => one instanceof Cidr && one.family === address.family));
        assert.ok(address instanceof IpAddress);
      }
      for (const fault of faults) {
        const text = faultText(fault);
        assert.ok(text.length < 1100 && !text.includes("\n"), text);
        assert.equal(isMissing(fault), fault.why !== "wrong-destination" && fault.family === undefined);
      }
    }),
  );
});

test("gatewaysOf: for an Egress without destinations an ADD waits, and a pod keeps what it has: nothing leaves without NAT", () => {
  const bare = { ...egress("bare", []), spec: undefined } as unknown as Egress;
  const source = sourceOf([bare], [service("bare", ["10.68.0.10"])]);
  const [fault = assert.fail(), ...more] = gatewaysOf(podOf(naming("bare")), source, [4, 6], NOT_ONLY).faults;
  assert.deepEqual([more, isMissing(fault), isBeingRepaired(fault)], [[], true, true]);
  assert.match(faultText(fault), /^Egress "internet\/bare" has no spec.destinations: /);
});

test("gatewaysOf: 10,000 names cost at most 1000 look-ups", () => {
  const names = Array.from({ length: 10_000 }, (_, at) => `nat-${at}`).join(",");
  let asked = 0;
  const egressOf = (): undefined => {
    asked += 1;
  };
  const { faults } = gatewaysOf(
    podOf(naming(names)),
    { usesOf: () => [], egress: egressOf, service: () => undefined },
    [4, 6],
    NOT_ONLY,
  );
  assert.deepEqual([asked, faults.length, faults.at(-1)?.why], [1000, 1001, "too-many"]);
});

test("faultText: a wrong destination is told with its field, and what is right", () => {
  const { wrong } = clientEgress(egress("nat", ["203.0.113.0/24", "203.0.113.0/24", "010.2.3.0/24"]));
  assert.deepEqual(wrong, [{ field: "spec.destinations[2]", text: "010.2.3.0/24" }]);
  assert.equal(
    faultText({
      egress: { namespace: "internet", name: "nat" },
      why: "wrong-destination",
      field: "spec.destinations[2]",
      destination: "010.2.3.0/24",
    }),
    'Egress "internet/nat": spec.destinations[2] "010.2.3.0/24" is not a CIDR, such as 10.0.0.0/8 (without leading zeros) or fd00::/8, and is left out',
  );
});
