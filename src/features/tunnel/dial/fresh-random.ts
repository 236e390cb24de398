import { randomFillSync } from "node:crypto";
import { type TunnelId, tunnelId } from "#wire/konnectivity";

const BYTES = 8;
/** A call of the generator costs as much for one id as for many. */
const pool = Buffer.allocUnsafeSlow(256 * BYTES);
let at = pool.length;

/** A dial id: a random number of 63 bits, which is what Go's clients choose. */
export function freshRandom(): TunnelId {
  if (at === pool.length) {
    randomFillSync(pool);
    at = 0;
  }
  const random = pool.readBigUInt64BE(at) >> 1n;
  at += BYTES;
  return tunnelId(random);
}
