import type { ByteString } from "#kernel/nft-elements";

/**
 * Puts the wanted endpoints into slots so that as few slots as can be change: who stays keeps a slot below the new count, the others
 * fill what is free (docs/spec/service-proxy.md#2.8). Pure. `observed` may have holes and repeat an endpoint, as a kernel might.
 */
export function assignSlots(observed: readonly (ByteString | undefined)[], wanted: readonly ByteString[]): ByteString[] {
  const left = new Set(wanted);
  const slots: (ByteString | undefined)[] = new Array(wanted.length).fill(undefined);
  for (let slot = 0; slot < wanted.length && slot < observed.length; slot += 1) {
    const endpoint = observed[slot];
    if (endpoint === undefined || !left.delete(endpoint)) continue;
    slots[slot] = endpoint;
  }
  const others = left.values();
  return slots.map((endpoint) => endpoint ?? (others.next().value as ByteString));
}
