import type { Holding, KernelClaim } from "#base/estate";
import { ORIGIN_RULE, ORIGIN_TABLE } from "./client/origin.ts";
import { FIRST_RULE, LAST_RULE, NARROW_TABLE, WIDE_TABLE } from "./client/plan.ts";
import { CLIENT_GUARD_TABLE } from "./guard/client-guard.ts";
import { ROUTER_TABLE } from "./guard/router-guard.ts";
import { EGRESS_PROTOCOL } from "./net-plan/index.ts";
import { CLIENT_RULE, CLIENT_TABLE } from "./router/plan.ts";
import { MARK } from "./router/rules.ts";
import { fouDriver, vxlanDriver } from "./tunnel/index.ts";

const LAST_TABLE = 0xffff_ffff;
const PORT_FLAG = { port: "--egress-port" };
const routes = (id: string, table: number | readonly [number, number], at: "client" | "router"): KernelClaim => ({
  ...{ id, kind: "routes", table, protocol: EGRESS_PROTOCOL, in: at },
});

/** The kernel objects of a pod that uses Egresses in its network namespace. `port`: UDP port of the tunnels. Pure. */
export function clientEstate(port: number): readonly Holding[] {
  return [
    {
      claims: [
        routes("client-routes", [NARROW_TABLE, WIDE_TABLE], "client"),
        {
          ...{ id: "client-rules", kind: "rules", in: "client", priority: [FIRST_RULE, LAST_RULE] },
          table: [NARROW_TABLE, WIDE_TABLE],
        },
      ],
      what: "in pods that use an Egress: routes to Egresses; `unreachable` routes of metric 1000000 (an annotation names the Egress) and 1000001 (the Egress selects the pod) close destinations. Objects of others within these are removed",
    },
    {
      claims: [
        routes("origin-routes", [ORIGIN_TABLE, LAST_TABLE], "client"),
        {
          ...{ id: "origin-rules", kind: "rules", in: "client", priority: ORIGIN_RULE },
          table: [ORIGIN_TABLE, LAST_TABLE],
        },
        { id: "origin-marks", kind: "comments", in: "client", comment: "coil-<input or output>-" },
      ],
      what: "there, with `originatingOnly`: answers of connections that came in leave by the interface of the connection; the table is 1000 and its index",
    },
    {
      claims: [
        { id: "client-links", kind: "link-names", in: "client", names: ["nat_*", ...fouDriver.routerLinks] },
        { id: "client-port", kind: "udp-port", in: "client", port },
      ],
      flags: PORT_FLAG,
      what: "there: tunnels to Egresses, and `rp_filter` of IPv4, which stays when the last Egress goes",
    },
    {
      claims: [{ id: "client-guard", kind: "nft-table", in: "client", ...CLIENT_GUARD_TABLE }],
      what: "there: packets of tunnels are taken from routers alone",
    },
  ];
}

/** The kernel objects of a router of an Egress in its network namespace. `port`: UDP port of the tunnels. Pure. */
export function routerEstate(port: number): readonly Holding[] {
  return [
    {
      claims: [
        routes("router-routes", CLIENT_TABLE, "router"),
        { id: "router-rule", kind: "rules", in: "router", priority: CLIENT_RULE, table: CLIENT_TABLE },
        {
          ...{ id: "router-links", kind: "link-names", in: "router" },
          names: [...fouDriver.routerLinks, ...vxlanDriver.routerLinks],
        },
        { id: "router-port", kind: "udp-port", in: "router", port },
      ],
      flags: { port: "--fou-port" },
      what: "in the namespace of the router's pod: tunnels to the clients of its Egress",
    },
    {
      claims: [{ id: "router-rules", kind: "comments", in: "router", comment: `${MARK} <8 hex digits>` }],
      what: "there, in nftables or iptables: masquerade; drops what connection tracking does not know",
    },
    {
      claims: [{ id: "router-guard", kind: "nft-table", in: "router", ...ROUTER_TABLE }],
      what: "there: what a router takes of tunnels, and to whom it answers; packets of tunnels are not tracked",
    },
  ];
}
