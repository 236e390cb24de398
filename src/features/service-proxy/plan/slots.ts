import type { ByteString } from "#kernel/nft-elements";

/**
 * Assigns slots to the wanted endpoints so that few slots change: an endpoint that stays keeps its slot if it is below the new count, the
 * others get free slots (docs/spec/service-proxy.md#2.8). Pure. `observed` may have holes and duplicates.
 */
export function assignSlots(
  observed: readonly (ByteString | undefined)[],
  wanted: readonly ByteString[],
): ByteString[] {
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
