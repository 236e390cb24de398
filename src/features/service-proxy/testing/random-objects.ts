/** Random Services and EndpointSlices, valid and invalid, as an API server with lax validation may have them. */
import fc from "fast-check";
import type { EndpointSlice, Service } from "#kube/client";

const names = fc.constantFrom("a", "b", "c");
const odd = fc.constantFrom(
  "",
  "None",
  "not an address",
  "300.1.1.1",
  "fd00::zz",
  "::",
  "0.0.0.0",
  "010.000.001.007",
  " 10.96.0.9 ",
  "1.2.3.4/5",
);
const ip4 = (prefix: string) => fc.integer({ min: 1, max: 6 }).map((last) => `${prefix}.${last}`);
const ip6 = (prefix: string) => fc.integer({ min: 1, max: 6 }).map((last) => `${prefix}::${last}`);
const clusterIP = fc.oneof(
  { weight: 6, arbitrary: fc.oneof(ip4("172.30.0"), ip6("fd00:172:30")) },
  { weight: 1, arbitrary: odd },
);
const outerIP = fc.oneof(
  { weight: 6, arbitrary: fc.oneof(ip4("203.0.113"), ip6("2001:db8:113")) },
  { weight: 1, arbitrary: odd },
);
const port = fc.oneof(
  { weight: 8, arbitrary: fc.integer({ min: 80, max: 83 }) },
  { weight: 1, arbitrary: fc.constantFrom(0, -1, 65_536, 1.5) },
);
const policy = fc.constantFrom("Cluster", "Local", "Local", undefined, "Sideways");
const range = fc.constantFrom(
  "10.0.0.0/8",
  " 10.1.0.0/16",
  "10.1.2.0/24",
  "198.51.100.9/32",
  "0.0.0.0/0",
  "fd00::/8",
  "::/0",
  "2001:db8::/32",
  "10.0.0.0/99",
  "x",
);
const maybe = <T>(arbitrary: fc.Arbitrary<T>) => fc.option(arbitrary, { nil: undefined });

/** A Service named a to c. */
export const randomService: fc.Arbitrary<Service> = fc
  .record({
    name: names,
    created: fc.integer({ min: 0, max: 3 }),
    type: fc.constantFrom("ClusterIP", "NodePort", "LoadBalancer", "ExternalName", undefined),
    clusterIPs: fc.oneof(
      { weight: 4, arbitrary: fc.tuple(ip4("172.30.0"), ip6("fd00:172:30")) },
      { weight: 1, arbitrary: fc.array(clusterIP, { maxLength: 3 }) },
    ),
    ports: fc.array(
      fc.record({
        name: fc.constantFrom("", "http", "http", "http", "dns"),
        protocol: fc.constantFrom("TCP", "TCP", "TCP", "UDP", "SCTP", undefined, "ICMP"),
        port,
        nodePort: maybe(fc.oneof(fc.integer({ min: 30_080, max: 30_083 }), fc.constant(0))),
      }),
      { minLength: 1, maxLength: 3 },
    ),
    externalIPs: fc.array(outerIP, { maxLength: 2 }),
    ingress: fc.array(fc.record({ ip: outerIP, ipMode: fc.constantFrom(undefined, "VIP", "Proxy") }), { maxLength: 2 }),
    ranges: fc.array(range, { maxLength: 3 }),
    external: policy,
    internal: policy,
    affinity: fc.constantFrom(undefined, "None", "ClientIP"),
    seconds: maybe(fc.constantFrom(1, 10_800, 0, -5, 1_000_000)),
  })
  .map(
    ({
      name,
      created,
      type,
      clusterIPs,
      ports,
      externalIPs,
      ingress,
      ranges,
      external,
      internal,
      affinity,
      seconds,
    }) => {
      const spec = {
        type,
        clusterIP: clusterIPs[0],
        clusterIPs,
        ports,
        externalIPs,
        loadBalancerSourceRanges: ranges,
        externalTrafficPolicy: external,
        internalTrafficPolicy: internal,
        sessionAffinity: affinity,
        sessionAffinityConfig: { clientIP: { timeoutSeconds: seconds } },
      };
      const metadata = {
        name,
        namespace: "ns",
        uid: name,
        resourceVersion: "1",
        creationTimestamp: new Date(created * 1000).toISOString(),
      };
      return { metadata, spec, status: { loadBalancer: { ingress } } } as unknown as Service;
    },
  );

const endpointIPs = {
  IPv4: fc.oneof({ weight: 8, arbitrary: fc.oneof(ip4("10.180.0"), ip4("10.180.1")) }, { weight: 1, arbitrary: odd }),
  IPv6: fc.oneof(
    { weight: 8, arbitrary: fc.oneof(ip6("fd00:10:180"), ip6("fd00:10:180:1")) },
    { weight: 1, arbitrary: odd },
  ),
  FQDN: odd,
} as const;
const flag: fc.Arbitrary<boolean | undefined> = fc.constantFrom(true, false, undefined);

const endpoints = (addressType: keyof typeof endpointIPs) =>
  fc.array(
    fc.record({
      addresses: fc.array(endpointIPs[addressType], { minLength: 1, maxLength: 2 }),
      conditions: fc.record({ ready: fc.oneof(fc.constant(true), flag), serving: flag, terminating: flag }),
      nodeName: fc.constantFrom("node-a", "node-b", undefined),
      hints: maybe(
        fc.record({ forZones: fc.array(fc.constantFrom({ name: "z1" }, { name: "z2" }), { maxLength: 2 }) }),
      ),
    }),
    { minLength: 1, maxLength: 6 },
  );

/** A slice of one of those Services. */
export const randomSlice: fc.Arbitrary<EndpointSlice> = fc
  .constantFrom("IPv4", "IPv4", "IPv4", "IPv6", "IPv6", "IPv6", "FQDN")
  .chain((addressType) =>
    fc.record({
      name: fc.integer({ min: 1, max: 12 }).map((number) => `s${number}`),
      service: fc.oneof(
        { weight: 8, arbitrary: names },
        { weight: 1, arbitrary: fc.constantFrom(undefined, "", "nobody") },
      ),
      addressType: fc.constant(addressType),
      ports: fc.array(
        fc.record({
          name: fc.constantFrom("", "http", "http", "http", "dns", undefined),
          protocol: fc.constantFrom("TCP", "TCP", "UDP", undefined),
          port: maybe(port),
        }),
        { minLength: 1, maxLength: 3 },
      ),
      endpoints: endpoints(addressType as keyof typeof endpointIPs),
    }),
  )
  .map(({ name, service, ...rest }) => {
    const labels = service === undefined ? {} : { "kubernetes.io/service-name": service };
    return {
      metadata: { name, namespace: "ns", uid: name, resourceVersion: "1", labels },
      ...rest,
    } as unknown as EndpointSlice;
  });
