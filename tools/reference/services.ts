import { kernel, listeners, rights, type Section, section } from "./section.ts";

/** By program. Numbers are defaults where a flag sets them. */
export const services: Readonly<Record<string, readonly Section[]>> = {
  "service-proxy": [
    listeners(
      ["`:10256/healthz`", "200 where load balancers may send here, else 503; why, as JSON"],
      ["`:10256/livez`", "503 where a restart may help: changes wait for twice `--sync-period`"],
      ["`:10256/readyz`", "200 where nothing below is degraded, else 503; a line for each"],
      ["`NODE:healthCheckNodePort/`", "of a Service of policy Local: 200 with ready endpoints here, else 503"],
      ["`127.0.0.1:10249/metrics`", "metrics in Prometheus' text format"],
    ),
    section("Parts of `/readyz`", "part", "degraded when")(
      [
        "`watch services`, `watch endpointslices`, `watch nodes`, `watch servicecidrs`",
        "it was not read yet, or cannot be read now. An API server that does not serve ServiceCIDRs has none",
      ],
      ["`nftables IPv4`, `nftables IPv6`", "nothing was synced yet, or the last sync failed"],
      ["`conntrack`", "connection tracking cannot be read, which is tried at the start: stale UDP flows stay"],
    ),
    rights(
      ["services, endpointslices, servicecidrs", "list, watch"],
      ["nodes", "get, list, watch: of its own"],
      [
        "events",
        "create, patch: at the start, where a health check port cannot be had, where an object cannot be read, where an address is another's",
      ],
    ),
    kernel(
      [
        "nft tables `ip kube-proxy` and `ip6 kube-proxy` (`--table-name`)",
        "all of it; a chain `isthmus-layout-1` says how they are laid out, `isthmus-complete` that they are whole, `isthmus-rules-…` which rules they have",
      ],
      [
        "bit 14 of the packet mark (`--masquerade-bit`)",
        "this connection is to be masqueraded; cleared on the way out",
      ],
      [
        "`net.netfilter.nf_conntrack_*`",
        "size and timeouts of connection tracking, by the flags of kube-proxy; 0 leaves them alone",
      ],
    ),
  ],
};
