/** A start where nothing has changed writes nothing (docs/spec/service-proxy.md#2.9); one where something has, that alone. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, test } from "node:test";
import type { IpFamily } from "#base/ip";
import { IpAddress } from "#base/ip";
import type { EndpointSlice, Service } from "#kube/client";
import { Bed } from "../testing/bed.ts";
import { addressesOf, TARGET_PORT } from "../testing/fixture.ts";
import { NodeProxy } from "../testing/node-proxy.ts";
import { CONDITIONS, endpointObject, serviceObject, sliceObject } from "../testing/objects.ts";

const SERVICES = 300;
const ENDPOINTS = 9;
/** Times that the endpoints of all Services change, which leaves them in slots of any order. */
const ROUNDS = 3;
const prefix = `isp-again-${process.pid}`;
const FAMILIES = [4, 6] as const;

let bed: Bed;
before(async () => {
  bed = await Bed.open(prefix);
});
after(() => bed[Symbol.asyncDispose]());

const PORTS = [
  { name: "http", port: 80, protocol: "TCP" },
  { name: "dns", port: 53, protocol: "UDP" },
  { name: "sig", port: 3868, protocol: "SCTP" },
] as const;

/** Services of every kind, by number. */
const KINDS: readonly ((at: number) => { readonly spec: object; readonly status?: object })[] = [
  () => ({ spec: {} }),
  (at) => ({ spec: { type: "NodePort", ports: [{ ...PORTS[0], nodePort: 30_000 + at }] } }),
  (at) => ({
    spec: {
      type: "LoadBalancer",
      loadBalancerSourceRanges: ["192.0.2.0/24", "10.0.0.0/8", "198.51.100.0/28", "2001:db8::/32", "fd00:1::/64"],
      ports: [{ ...PORTS[0], nodePort: 30_000 + at }],
    },
    status: ingress(at),
  }),
  (at) => ({
    spec: {
      type: "LoadBalancer",
      externalTrafficPolicy: "Local",
      healthCheckNodePort: 31_000 + at,
      ports: [{ ...PORTS[0], nodePort: 30_000 + at }],
    },
    status: ingress(at),
  }),
  (at) => ({
    spec: { sessionAffinity: "ClientIP", sessionAffinityConfig: { clientIP: { timeoutSeconds: 60 * (1 + (at % 3)) } } },
  }),
  (at) => ({
    spec: {
      type: "NodePort",
      sessionAffinity: "ClientIP",
      externalTrafficPolicy: "Local",
      ports: [{ ...PORTS[1], nodePort: 30_000 + at }],
    },
  }),
  () => ({ spec: { internalTrafficPolicy: "Local", ports: PORTS } }),
  // Each address is claimed by two.
  (at) => ({ spec: { externalIPs: [outer(4, at >> 4), outer(6, at >> 4)], ports: PORTS } }),
];

const outer = (family: IpFamily, at: number): string =>
  String(IpAddress.fromValue(family, addressesOf(family).externalIP.value + BigInt(at + 1)));
const ingress = (at: number): object => ({
  loadBalancer: { ingress: FAMILIES.map((family) => ({ ip: outer(family, 500 + at) })) },
});

function service(at: number): Service {
  const { spec, status = {} } = KINDS[at % KINDS.length]?.(at) ?? { spec: {} };
  const clusterIPs = FAMILIES.map((family) => String(addressesOf(family).serviceCIDR.at(at + 100)));
  const some = at % 5 === 0 ? clusterIPs.slice(0, 1) : clusterIPs;
  const object = serviceObject(4, { clusterIP: some[0], clusterIPs: some, ...spec }, `svc-${at}`);
  return { ...object, status } as Service;
}

/** In a round each Service has others of its possible endpoints, none every now and then. */
function slices(at: number, round: number): readonly EndpointSlice[] {
  return FAMILIES.map((family) => {
    const { localEndpoint, remoteEndpoint } = addressesOf(family);
    const endpoints = Array.from({ length: ENDPOINTS }, (_, one) => {
      const where = one % 4 === 0 ? "here" : "elsewhere";
      const base = where === "here" ? localEndpoint : remoteEndpoint;
      const conditions = one === 5 ? CONDITIONS.terminating : one === 6 ? CONDITIONS.unready : CONDITIONS.ready;
      return endpointObject(IpAddress.fromValue(family, base.value + BigInt((at % 20) * 16 + one)), where, {
        conditions,
      });
    }).filter((_, one) => (at * 7 + one * 3 + round * 5) % 11 < at % 12);
    const ports = PORTS.map(({ name, protocol }, one) => ({ name, protocol, port: TARGET_PORT + one }));
    return sliceObject(family, endpoints, { name: `svc-${at}-${family}`, service: `svc-${at}`, ports });
  });
}

const all = Array.from({ length: SERVICES }, (_, at) => at);
const services = all.map(service);
const slicesOf = (round: number): EndpointSlice[] => all.flatMap((at) => slices(at, round));
const restart = (): Promise<NodeProxy> => NodeProxy.startAgain(bed, services, slicesOf(ROUNDS));
const nft = (...words: readonly string[]): string =>
  execFileSync("ip", ["netns", "exec", `${prefix}-node`, "nft", ...words], { encoding: "utf8", maxBuffer: 1 << 26 });

/** Returns the number of transactions of a start. */
async function transactionsOf(start: () => Promise<NodeProxy>): Promise<number> {
  const earlier = bed.elements.generation();
  const proxy = await start();
  await proxy[Symbol.asyncDispose]();
  return bed.elements.generation() - earlier;
}

test(`restart: without a change no transaction is made, whatever came before, with ${SERVICES} Services of every kind`, async () => {
  const first = await NodeProxy.open(bed);
  await first.setSlices(...slicesOf(0));
  await first.set(...services);
  assert.ok(first.changes > 3000, `${first.changes}`);
  for (let round = 1; round <= ROUNDS; round += 1) await first.setSlices(...slicesOf(round));
  await first[Symbol.asyncDispose]();
  const listed = nft("-a", "list", "ruleset");
  for (let start = 1; start <= 3; start += 1) assert.equal(await transactionsOf(restart), 0, `start ${start}`);
  assert.equal(nft("-a", "list", "ruleset"), listed);
});

test("restart: a meanwhile changed rule, chain, hook or range is repaired, and the next start writes nothing", async () => {
  const T = ["ip", "kube-proxy"];
  for (const words of [
    ["flush", "chain", ...T, "services"],
    ["insert", "rule", ...T, "nat-prerouting", "accept"],
    ["add", "chain", ...T, "filter-forward", "{ policy drop; }"],
    ["add", "table", ...T, "{ flags dormant; }"],
    ["add", "chain", ...T, "evil", "{ type filter hook prerouting priority -300; policy drop; }"],
    ["flush", "set", ...T, "service-cidrs"],
    ["add", "element", ...T, "service-cidrs", "{ 192.0.2.0/25 }"],
    ["flush", "set", ...T, "nodeport-ips"],
    ["flush", "map", ...T, "service-ips"],
  ]) {
    const sound = nft("list", "table", ...T);
    nft(...words);
    assert.ok((await transactionsOf(restart)) > 0, words.join(" "));
    const linesOf = (text: string): readonly string[] =>
      text
        .replaceAll(/(?<=chain isthmus-rules-)[0-9a-f]{16}/g, "digest")
        .split(/[\n,]/)
        .map((line) => line.trim().replace(/^elements = \{ | \}$/g, ""))
        .sort();
    assert.deepEqual(linesOf(nft("list", "table", ...T)), linesOf(sound), words.join(" "));
    assert.equal(await transactionsOf(restart), 0, `after ${words.join(" ")}`);
  }
});

test("restart: only an endpoint that went meanwhile is written", async () => {
  const last = slicesOf(ROUNDS);
  const [slice] = last.filter(({ endpoints }) => endpoints.length > 3);
  const changed = last.map((one) => (one === slice ? { ...one, endpoints: one.endpoints.slice(1) } : one));
  const proxy = await NodeProxy.startAgain(bed, services, changed);
  assert.ok(proxy.changes > 0 && proxy.changes < 40, `${proxy.changes}`);
  await proxy[Symbol.asyncDispose]();
});
