/** Tables of others stay as they are, to the byte (docs/spec/service-proxy.md#3.2: R2). */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import { Bed } from "../testing/bed.ts";
import { addressesOf, NODE_PORT, SERVICE_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const FAMILIES = [4, 6] as const;
const prefix = `isp-alien-${process.pid}`;

/** Tables of others on nodes: names, hooks and sets as close to ours as others' can be. */
const ALIEN = `
table ip kube-proxy-2 {
  comment "of another"
  map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 172.30.0.41 . tcp . 80 comment "ns/web:http/TCP" : accept }; }
  map eps { type ipv4_addr : ipv4_addr . inet_service; elements = { 10.0.0.1 : 10.0.0.2 . 80 }; }
  set cluster-ips { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.0-192.0.2.9 }; }
  counter seen { packets 5 bytes 300; }
  chain services { ip daddr 198.18.0.1 tcp dport 80 dnat to 198.18.0.2:8080; }
  chain nat-prerouting { type nat hook prerouting priority -100; policy accept; jump services; }
  chain filter-output { type filter hook output priority 0; policy accept; meta mark & 0x8000 == 0x8000 counter name seen accept; }
}
table ip6 kube-proxy-2 {
  set affinity { type ipv6_addr; timeout 1h; flags dynamic; size 10; }
  chain masquerading { type nat hook postrouting priority 100; policy accept; ip6 daddr 2001:db8:ffff::/48 masquerade fully-random; }
}
table inet firewall {
  set nodeport-ips { type inet_service; elements = { 22, 80, 30080 }; }
  chain input { type filter hook input priority 0; policy accept; tcp dport @nodeport-ips accept comment "ours to open"; }
  chain forward { type filter hook forward priority -200; policy accept; ct state established accept; }
}
table ip nat {
  chain KUBE-SERVICES { counter packets 7 bytes 420; }
  chain KUBE-MARK-MASQ { meta mark set mark or 0x4000; }
  chain PREROUTING { type nat hook prerouting priority -100; policy accept; jump KUBE-SERVICES; }
}
`;

let bed: Bed;
before(async () => {
  bed = await Bed.open(prefix);
});
after(() => bed[Symbol.asyncDispose]());

const nft = (words: readonly string[], input = ""): string =>
  execFileSync("ip", ["netns", "exec", `${prefix}-node`, "nft", ...words], { encoding: "utf8", input });

/** Handles too: what was deleted and made again has another. Counters stand still where no packet meets them. */
function others(): string {
  const tables = ["ip kube-proxy-2", "ip6 kube-proxy-2", "inet firewall", "ip nat"];
  return tables.map((table) => nft(["-a", "list", "table", ...table.split(" ")])).join("\n");
}

test("other tables: a start, changes, a restart and the removal of ours leave them unchanged, with their handles", async () => {
  nft(["-f", "/dev/stdin"], ALIEN);
  const atFirst = others();
  const counters = (text: string): string => text.replace(/packets \d+ bytes \d+/g, "");
  const objects = FAMILIES.map((family) => {
    const ports = [{ name: "http", port: SERVICE_PORT, nodePort: NODE_PORT + family }];
    const spec = { type: "NodePort", ports, sessionAffinity: "ClientIP" };
    const service = serviceObject(family, spec, `web${family}`);
    const endpoints = [endpointObject(addressesOf(family).remoteEndpoint, "elsewhere")];
    return { service, slice: sliceObject(family, endpoints, { service: `web${family}` }) };
  });
  const services = objects.map(({ service }) => service);
  const slices = objects.map(({ slice }) => slice);

  const proxy = await NodeProxy.open(bed);
  await proxy.setSlices(...slices);
  await proxy.set(...services);
  assert.equal(counters(others()), counters(atFirst), "after a start");
  await proxy.remove("web4");
  await proxy.set(...services);
  await proxy[Symbol.asyncDispose]();
  const second = await NodeProxy.startAgain(bed, services, slices);
  for (const family of FAMILIES) {
    const { clusterIP } = addressesOf(family);
    // Others' map says accept for this very address: two tables are asked one after the other.
    assert.equal((await bed.connect("external", clusterIP, SERVICE_PORT, { droppedMs: 900 })).kind, "delivered");
  }
  assert.equal(counters(others()), counters(atFirst), "after changes and a restart");
  await second[Symbol.asyncDispose]();
  const third = await NodeProxy.open(bed);
  await third[Symbol.asyncDispose]();
  assert.equal(counters(others()), counters(atFirst), "after ours were removed and made again");
});
