import { kernel, rights, type Section } from "./section.ts";

/** By program. Numbers are defaults where a flag sets them. */
export const services: Readonly<Record<string, readonly Section[]>> = {
  "service-proxy": [
    rights(
      ["services, endpointslices, servicecidrs", "list, watch"],
      ["nodes", "get, list, watch: of its own"],
      ["events", "create, patch: at the start, and where a health check port cannot be had"],
    ),
    kernel(
      [
        "nft tables `ip kube-proxy` and `ip6 kube-proxy` (`--table-name`)",
        "all of it; a chain `isthmus-layout-1` says how they are laid out, `isthmus-complete` that they are whole",
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
