import type { Holding } from "#base/estate";
import { LAYOUT_CHAIN } from "./dataplane/table-rules.ts";
import { REPLACEMENT_SUFFIX } from "./dataplane/takeover.ts";

/** The kernel objects of a service proxy. `mark`: the bit of the packet mark. Pure. */
export function servicesEstate({
  tableName,
  mark,
}: {
  readonly tableName: string;
  readonly mark: number;
}): readonly Holding[] {
  const tables = (name: string, id: string) =>
    (["ip", "ip6"] as const).map((family) => ({
      ...({ id: `${id}-${family}`, kind: "nft-table", family, name, chain: LAYOUT_CHAIN } as const),
    }));
  return [
    {
      claims: tables(tableName, "services"),
      flags: { name: "--table-name" },
      what: `the whole tables. Chain \`${LAYOUT_CHAIN}\` names the layout, \`isthmus-complete\` marks a complete table, \`isthmus-rules-…\` seals the rules`,
    },
    {
      claims: tables(`${tableName}${REPLACEMENT_SUFFIX}`, "takeover"),
      flags: { name: "--table-name" },
      what: "the same while another's table is taken over",
    },
    {
      claims: [{ id: "masquerade", kind: "mark", value: mark }],
      flags: { value: "--masquerade-bit" },
      what: "marks a connection to masquerade; cleared before masquerading. Rules of affinity borrow the whole mark and restore it",
    },
    {
      claims: [{ id: "conntrack", kind: "sysctl", key: "net/netfilter/nf_conntrack_*" }],
      what: "size and timeouts of connection tracking, from the flags; 0 does not change them",
    },
  ];
}
