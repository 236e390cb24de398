import assert from "node:assert/strict";
import { test } from "node:test";
import { IpAddress } from "#base/ip";
import { planService, WantedTable } from "../plan/index.ts";
import { NODE, servicePort } from "../testing/fixture.ts";
import { LostClaims } from "./lost-claims.ts";

/** A Service that asks for an external address of both kinds; the number is its age. */
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

test("LostClaims: a Service that does not get an address and port, and a NodePort, is told of once, with the one that has them", () => {
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

test("LostClaims: told again when it is lost anew, and of each of several Services", () => {
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
