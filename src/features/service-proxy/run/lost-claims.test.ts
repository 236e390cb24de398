import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { type HostFacts, judgeAddress } from "../addresses/index.ts";
import { type AddressClaim, addressBytes, planService, WantedTable } from "../plan/index.ts";
import { NODE, servicePort } from "../testing/fixture.ts";
import { LostClaims } from "./lost-claims.ts";

/** A Service that claims an external address of both kinds; the number is its age. */
function claim(wanted: WantedTable, name: string, createdAt: number, family: 4 | 6 = 4): void {
  const address = IpAddress.parse(family === 4 ? "203.0.113.9" : "2001:db8::9");
  const own = IpAddress.parse(family === 4 ? `10.96.0.${createdAt}` : `fd00::${createdAt}`);
  const port = servicePort(family, {
    name,
    clusterIP: own,
    externalIPs: [address],
    loadBalancerIPs: [],
    createdAt,
    nodePort: 30_080,
  });
  wanted.set(`ns/${name}`, planService([{ port, endpoints: [] }], NODE, []));
}

test("LostClaims: an address and port, and a NodePort, that a Service does not get are reported once, with the holder", () => {
  for (const [family, text] of [
    [4, "203.0.113.9:80/TCP"],
    [6, "[2001:db8::9]:80/TCP"],
  ] as const) {
    const [wanted, claims] = [new WantedTable(), new LostClaims()];
    claim(wanted, "old", 1, family);
    assert.deepEqual(claims.take(wanted), []);
    claim(wanted, "new", 2, family);
    const lost = claims.take(wanted);
    const ours = { service: "ns/new", holder: "ns/old" };
    assert.deepEqual(
      new Set(lost.map((one) => JSON.stringify(one))),
      new Set([text, "NodePort 30080/TCP"].map((frontEnd) => JSON.stringify({ ...ours, frontEnd }))),
    );
    assert.deepEqual(claims.take(wanted), []);
  }
});

test("LostClaims: a claim is reported again if it is lost anew, and for each of several Services", () => {
  const [wanted, claims] = [new WantedTable(), new LostClaims()];
  claim(wanted, "first", 1);
  claim(wanted, "second", 2);
  assert.equal(claims.take(wanted).length, 2);
  wanted.set("ns/first", undefined);
  assert.deepEqual(claims.take(wanted), []);
  claim(wanted, "first", 1);
  claim(wanted, "third", 3);
  const services = claims.take(wanted).map(({ service }) => service);
  assert.deepEqual(services.sort(), ["ns/second", "ns/second", "ns/third", "ns/third"]);
});

test("WantedTable: a cluster IP belongs to its Service with all ports, whatever the age and order of other claims", () => {
  for (const order of [
    ["owner", "taker"],
    ["taker", "owner"],
  ]) {
    const [wanted, claims] = [new WantedTable(), new LostClaims()];
    const clusterIP = IpAddress.parse("10.96.0.7");
    const make = (name: string): void => {
      const common = { name, loadBalancerIPs: [], nodePort: 0 };
      const own =
        name === "owner"
          ? { clusterIP, externalIPs: [], createdAt: 9 }
          : { clusterIP: IpAddress.parse("10.96.0.8"), externalIPs: [clusterIP], createdAt: 1 };
      const ports = [servicePort(4, { ...common, ...own })];
      if (name === "taker") ports.push(servicePort(4, { ...common, ...own, portName: "other", port: 8080 }));
      wanted.set(
        `ns/${name}`,
        planService(
          ports.map((port) => ({ port, endpoints: [] })),
          NODE,
          [],
        ),
      );
    };
    for (const name of order) make(name);
    const ofAddress = (): string[] =>
      [...wanted.frontEnds()]
        .filter(([id]) => id.startsWith(`i${addressBytes(clusterIP)}`))
        .map(([, { service }]) => service)
        .sort();
    const all = ["ns/taker:http/TCP", "ns/taker:other/TCP"];
    assert.deepEqual(ofAddress(), ["ns/owner:http/TCP"]);
    const told = { service: "ns/taker", holder: "ns/owner" };
    assert.deepEqual(
      claims.take(wanted).sort((a, b) => (a.frontEnd < b.frontEnd ? -1 : 1)),
      [
        { ...told, frontEnd: "10.96.0.7:80/TCP" },
        { ...told, frontEnd: "10.96.0.7:8080/TCP" },
      ],
    );
    wanted.takeChanged();
    wanted.set("ns/owner", undefined);
    assert.deepEqual(ofAddress(), all, "no cluster IP: the claimant holds it");
    assert.equal(wanted.takeChanged().frontEnds.size, 2);
    make("owner");
    assert.deepEqual(ofAddress(), ["ns/owner:http/TCP"], "made again it has its own at once");
    assert.equal(wanted.takeChanged().frontEnds.size, 2);
    assert.deepEqual([...wanted.rivals("ns/owner")], ["ns/taker"]);
  }
});

/** The mode strict, and an empty cluster. */
const strict = (claim: AddressClaim): string | undefined => {
  const facts: HostFacts = {
    ...{ mode: "strict" as const, ownNode: [IpAddress.parse("198.51.100.1")], host: new Set<string>() },
    ...{ otherNodes: new Map<string, string>(), podRanges: [], serviceCIDRs: [], hostPorts: [], apiServer: undefined },
  };
  const cluster = {
    ...{ isClusterIP: () => false, otherEndpoint: () => undefined, nodePortOf: () => undefined },
    apiServerPorts: () => new Set<number>(),
  };
  const judgement = judgeAddress(claim, facts, cluster);
  return judgement.kind === "refused" ? judgement.owner : undefined;
};

test("planService: in the mode strict no Service gets an address of this node, of loopback, of the link or of multicast", () => {
  const refused = ["198.51.100.1", "127.0.0.1", "169.254.169.254", "0.0.0.0", "224.0.0.251"].map((one) =>
    IpAddress.parse(one),
  );
  const allowed = IpAddress.parse("203.0.113.9");
  const own = { clusterIP: IpAddress.parse("10.96.0.8"), nodePort: 0 };
  const port = servicePort(4, { ...own, externalIPs: [...refused, allowed], loadBalancerIPs: refused });
  const [wanted, claims] = [new WantedTable(), new LostClaims()];
  wanted.set("ns/web", planService([{ port, endpoints: [] }], NODE, [], strict));
  assert.equal([...wanted.frontEnds()].length, 2);
  assert.deepEqual(
    claims.take(wanted).map(({ frontEnd, owner }) => `${frontEnd} ${owner}`),
    [
      "198.51.100.1:80/TCP this node",
      "127.0.0.1:80/TCP loopback",
      "169.254.169.254:80/TCP the link",
      "0.0.0.0:80/TCP no host",
      "224.0.0.251:80/TCP multicast",
    ],
  );
  assert.equal(claims.count, 5);
  wanted.set("ns/web", undefined);
  assert.deepEqual(claims.take(wanted), []);
  const six = servicePort(6, {
    clusterIP: IpAddress.parse("fd00::8"),
    nodePort: 0,
    externalIPs: ["::1", "fe80::1", "ff02::1", "::"].map((one) => IpAddress.parse(one)),
    loadBalancerIPs: [],
  });
  assert.equal(planService([{ port: six, endpoints: [] }], NODE, [], strict).frontEnds.length, 1);
});
