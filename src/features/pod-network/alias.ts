/**
 * Link aliases are the only record of the owner of an address (docs/spec/pod-network.md#5.2): the record stays when coild ends, and is
 * deleted with the link. `COIL:<pool>:<containerID>:<ifname>` marks a finished attachment, `COIL-PENDING:<containerID>:<ifname>` one whose
 * ADD has not ended; pending attachments are removed at start-up. `COIL::<pod UID>:<ifname>` marks the link of another plugin behind which
 * coil is chained (docs/spec/pod-network.md#5.3).
 */
export type Alias =
  | { readonly kind: "attached"; readonly pool: string; readonly containerId: string; readonly ifname: string }
  | { readonly kind: "adopted"; readonly podUid: string; readonly ifname: string }
  | { readonly kind: "pending"; readonly containerId: string; readonly ifname: string };

/** The kernel's limit for an alias, bytes (IFALIASZ of linux/if.h minus the terminating NUL). */
export const MAX_ALIAS_BYTES = 255;

const ATTACHED = "COIL";
const PENDING = "COIL-PENDING";

/** The forms of aliases. */
export const ALIAS_PATTERNS = {
  attached: `${ATTACHED}:<pool>:<containerID>:<ifname>`,
  pending: `${PENDING}:<containerID>:<ifname>`,
  adopted: `${ATTACHED}::<pod UID>:<ifname>`,
} as const;

export function formatAlias(alias: Alias): string {
  if (alias.kind === "adopted") return `${ATTACHED}::${alias.podUid}:${alias.ifname}`;
  const { containerId, ifname } = alias;
  return alias.kind === "attached"
    ? `${ATTACHED}:${alias.pool}:${containerId}:${ifname}`
    : `${PENDING}:${containerId}:${ifname}`;
}

/** Parses an alias; `undefined` if it is not one of ours. */
export function parseAlias(text: string): Alias | undefined {
  const fields = text.split(":");
  if (fields[0] === ATTACHED && fields.length === 4) {
    const [, pool = "", containerId = "", ifname = ""] = fields;
    if (pool === "") return { kind: "adopted", podUid: containerId, ifname };
    return { kind: "attached", pool, containerId, ifname };
  }
  if (fields[0] === PENDING && fields.length === 3) {
    const [, containerId = "", ifname = ""] = fields;
    return { kind: "pending", containerId, ifname };
  }
  return undefined;
}
