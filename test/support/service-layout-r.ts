/**
 * kube-proxy's own nftables layout ("R", docs/spec/service-proxy.md#2.6) as a script for `nft -f`: a chain and an anonymous map for each Service.
 *
 * Owns: the text. Does not know: where it is loaded.
 *
 * ```ts
 * writeFileSync("table.nft", layoutR({ family: 4, services: [{ name: "ns/web", address, port: 80, endpoints, targetPort: 8080 }] }));
 * ```
 */
import { createHash } from "node:crypto";
import type { IpAddress, IpFamily } from "#base/ip";

/** A Service with one TCP port. */
export interface LayoutService {
  /** `namespace/name`. */
  readonly name: string;
  readonly address: IpAddress;
  readonly port: number;
  readonly endpoints: readonly IpAddress[];
  readonly targetPort: number;
}

/** The name of a Service's chain. */
export function layoutChain({ name }: Pick<LayoutService, "name">): string {
  const text = `${name}/tcp/http`;
  const hash = createHash("sha256").update(text).digest("hex").slice(0, 8).toUpperCase();
  return `service-${hash}-${text}`;
}

/** The script that kube-proxy writes when a Service's endpoints change. */
export function layoutChange(family: IpFamily, service: LayoutService): string {
  return `flush chain ${tableOf(family)} ${layoutChain(service)}\n${rulesOf(family, service)}`;
}

/** The script of the whole table, which must not exist. */
export function layoutR(of: { readonly family: IpFamily; readonly services: Iterable<LayoutService> }): string {
  const { family, services } = of;
  const table = tableOf(family);
  const ip = family === 4 ? "ip" : "ip6";
  const address = family === 4 ? "ipv4_addr" : "ipv6_addr";
  const parts = [
    `add table ${table}\n`,
    `add map ${table} service-ips { type ${address} . inet_proto . inet_service : verdict ; }\n`,
    `add set ${table} cluster-ips { type ${address} ; }\n`,
    `add set ${table} nodeport-ips { type ${address} ; }\n`,
    `add chain ${table} services\n`,
    `add chain ${table} masquerading\n`,
    `add chain ${table} cluster-ips-check\n`,
    `add rule ${table} services ${ip} daddr . meta l4proto . th dport vmap @service-ips\n`,
    `add rule ${table} masquerading mark and 0x4000 != 0 mark set mark xor 0x4000 masquerade fully-random\n`,
    `add rule ${table} cluster-ips-check ${ip} daddr @cluster-ips reject\n`,
    ...["prerouting", "output"].flatMap((hook) => [
      `add chain ${table} nat-${hook} { type nat hook ${hook} priority -100 ; }\n`,
      `add rule ${table} nat-${hook} jump services\n`,
    ]),
    ...["forward", "output"].flatMap((hook) => [
      `add chain ${table} filter-${hook} { type filter hook ${hook} priority 0 ; }\n`,
      `add rule ${table} filter-${hook} ct state new jump cluster-ips-check\n`,
    ]),
    `add chain ${table} nat-postrouting { type nat hook postrouting priority 100 ; }\n`,
    `add rule ${table} nat-postrouting jump masquerading\n`,
  ];
  for (const service of services) {
    const chain = layoutChain(service);
    parts.push(`add chain ${table} ${chain}\n`, rulesOf(family, service));
    parts.push(`add element ${table} cluster-ips { ${service.address} }\n`);
    parts.push(`add element ${table} service-ips { ${service.address} . tcp . ${service.port} : goto ${chain} }\n`);
  }
  return parts.join("");
}

function rulesOf(family: IpFamily, service: LayoutService): string {
  const targets = service.endpoints.map((endpoint, at) => `${at} : ${endpoint} . ${service.targetPort}`);
  const map = `numgen random mod ${targets.length} map { ${targets.join(", ")} }`;
  const ip = family === 4 ? "ip" : "ip6";
  return `add rule ${tableOf(family)} ${layoutChain(service)} meta l4proto tcp dnat ${ip} to ${map}\n`;
}

const tableOf = (family: IpFamily): string => `${family === 4 ? "ip" : "ip6"} kube-proxy`;
