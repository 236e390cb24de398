import type { Holding } from "#base/estate";
import { DELETION_GROUPS } from "#kernel/link";
import { ALIAS_PATTERNS } from "./alias.ts";
import { LINK_GROUPS } from "./link-groups.ts";

/** The mark on the link of another plugin. */
export const ADOPTED: Holding = {
  claims: [{ id: "adopted", kind: "links", alias: ALIAS_PATTERNS.adopted }],
  what: "with `--enable-ipam=false`: the link of a pod that another plugin has made; only the alias is the program's",
};

const { first, count } = DELETION_GROUPS;

/** The kernel objects of the pods' network on the host. Pure. */
export function podNetworkEstate({
  tableId,
  rulePriority,
  protocolId,
}: {
  readonly tableId: number;
  readonly rulePriority: number;
  readonly protocolId: number;
}): readonly Holding[] {
  return [
    {
      claims: [{ id: "attached", kind: "links", alias: ALIAS_PATTERNS.attached }],
      what: "a finished attachment; the only record of who holds which address",
    },
    {
      claims: [{ id: "pending", kind: "links", alias: ALIAS_PATTERNS.pending }],
      what: "an ADD under way; removed at the next start",
    },
    {
      claims: [{ id: "deletion", kind: "link-groups", groups: [first, first + count - 1] }],
      what: "links that are being deleted; one request deletes a group. Reserved: other links must not have these groups",
    },
    {
      claims: [{ id: "network", kind: "link-groups", groups: LINK_GROUPS.attached }],
      what: "attachments by the name of their CNI network (24 bits of its SHA-1), so that GC of one network does not affect the others",
    },
    {
      claims: [{ id: "cut-off", kind: "link-groups", groups: LINK_GROUPS.cutOff }],
      what: "the same while they are cut off: down until their block is this node's again",
    },
    {
      claims: [{ id: "pod-routes", kind: "routes", table: tableId, protocol: protocolId }],
      flags: { table: "--pod-table-id", protocol: "--protocol-id" },
      what: "a host route for each address of this node's pods",
    },
    {
      claims: [{ id: "pod-rule", kind: "rules", priority: rulePriority, table: tableId }],
      flags: { priority: "--pod-rule-prio", table: "--pod-table-id" },
      what: "looks that table up before the main table, in both families",
    },
  ];
}
