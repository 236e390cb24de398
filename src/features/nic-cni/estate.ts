import type { Holding } from "#base/estate";
import { deviceNames, NIC_ALIAS } from "./names.ts";
import { FIRST_PRIORITY, FIRST_TABLE } from "./routing.ts";

/** NICs of one sandbox, at most as many as a NicClaim's index can count to. */
const MAX_NICS = 1000;

/** The kernel objects of NICs on the host and in sandboxes. */
export const NIC_ESTATE: readonly Holding[] = [
  {
    claims: [
      { id: "nic", kind: "links", alias: `${NIC_ALIAS}<port id>:<container id>` },
      { id: "nic-names", kind: "link-names", names: Object.values(deviceNames("*")) },
    ],
    what: "the host's devices of a NIC of a VPC",
  },
  {
    claims: [
      {
        ...{ id: "nic-rules", kind: "rules", in: "pod", priority: [FIRST_PRIORITY, FIRST_PRIORITY + MAX_NICS] },
        table: [FIRST_TABLE, FIRST_TABLE + MAX_NICS],
      },
    ],
    what: "in sandboxes with NICs of a VPC: packets from an address of the second NIC and further ones leave by it",
  },
];
