import { kernel, listeners, rights, type Section, section } from "./section.ts";

/** Notes by program. A number that a flag sets is the flag's default. */
export const services: Readonly<Record<string, readonly Section[]>> = {
  "service-proxy": [
    listeners(
      ["`:10256/healthz`", "200 if load balancers may use this node, else 503; JSON with the reasons"],
      ["`:10256/livez`", "503 if a restart may help: a change has waited for twice `--sync-period`"],
      ["`:10256/readyz`", "200 if no part below is degraded, else 503; one line for each"],
      ["`NODE:healthCheckNodePort/`", "of a Service of policy Local: 200 if this node has ready endpoints, else 503"],
      ["`127.0.0.1:10249/metrics`", "metrics in Prometheus' text format"],
    ),
    section("Parts of `/readyz`", "part", "degraded when")(
      [
        "`watch services`, `watch endpointslices`, `watch nodes`, `watch servicecidrs`",
        "it was not read yet, or cannot be read now. ServiceCIDRs that the API server does not serve count as read",
      ],
      ["`nftables IPv4`, `nftables IPv6`", "there was no sync yet, or the last one failed"],
      ["`conntrack`", "connection tracking could not be read or changed at the last try: stale UDP flows stay"],
    ),
    rights(
      ["services, endpointslices, servicecidrs", "list, watch"],
      ["nodes", "list, watch: the proxy's own Node"],
      [
        "events",
        "create, patch: at the start, for a health check port that cannot be bound, an unreadable object, an address that belongs to another Service",
      ],
    ),
    kernel(
      [
        "nft tables `ip kube-proxy` and `ip6 kube-proxy` (`--table-name`)",
        "the whole tables. Chain `isthmus-layout-1` names the layout, `isthmus-complete` marks a complete table, `isthmus-rules-…` seals the rules",
      ],
      [
        "bit 14 of the packet mark (`--masquerade-bit`)",
        "marks a connection to masquerade; cleared before masquerading",
      ],
      [
        "`net.netfilter.nf_conntrack_*`",
        "size and timeouts of connection tracking, from the flags; 0 does not change them",
      ],
    ),
  ],
};
