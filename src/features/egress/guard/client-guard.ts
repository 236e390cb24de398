import type { IpAddress, IpFamily } from "#base/ip";
import type { TunnelDriver } from "../tunnel/index.ts";
import { addressElement } from "./elements.ts";
import type { GuardPlan, GuardRule } from "./plan.ts";

/** From whom a client takes packets of tunnels. */
export interface ClientGuard {
  readonly driver: Pick<TunnelDriver, "name">;
  /** UDP port of the tunnels. */
  readonly port: number;
  /** Addresses of the routers of the pod's Egresses. */
  readonly routers: readonly IpAddress[];
}

/** The nftables table of a client. */
export const CLIENT_GUARD_TABLE = { family: "inet", name: "coil-client" } as const;

const FAMILIES: readonly IpFamily[] = [4, 6];
const IP = { 4: "ip", 6: "ip6" } as const;
const ADDRESS = { 4: "ipv4_addr", 6: "ipv6_addr" } as const;

/**
 * Pure: the table of a client (docs/spec/pod-network.md#7.7): packets of tunnels are taken from routers alone, by their outer source. With FoU the links that
 * receive take IPIP and IPv6 tunnels without UDP too, which no router sends.
 */
export function planClientGuard({ driver, port, routers }: ClientGuard): GuardPlan {
  const drop = (reason: string, match = ""): GuardRule => ({ rule: `${match} counter drop`.trim(), reason });
  const own = [...new Map(routers.map((one) => [String(one), one])).values()];
  return {
    table: CLIENT_GUARD_TABLE,
    sets: FAMILIES.map((family) => ({
      name: `routers${family}`,
      spec: { key: ADDRESS[family] },
      elements: own.filter((one) => one.family === family).map(addressElement),
    })),
    chains: [
      {
        name: "input",
        base: { type: "filter", hook: "input", priority: "filter - 10", policy: "accept" },
        rules: [
          { rule: `udp dport ${port} goto tunnel` },
          ...(driver.name === "fou" ? [drop("plain-tunnel", "meta l4proto { 4, 41 }")] : []),
        ],
      },
      {
        name: "tunnel",
        rules: [
          ...FAMILIES.map((family) => ({ rule: `${IP[family]} saddr @routers${family} accept` })),
          drop("outer-source"),
        ],
      },
    ],
  };
}
