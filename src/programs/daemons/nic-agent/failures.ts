import { OvsdbError } from "#cloud/ovsdb";
import type { NicCallErrorCode } from "#features/nic-agent";
import { NicCniError } from "#features/nic-cni";

const OF_NETWORK: Readonly<Record<NicCniError["code"], NicCallErrorCode>> = {
  "no-bridge": "no-bridge",
  collision: "collision",
  "device-wait": "try-again",
  "no-sandbox": "no-sandbox",
  journal: "internal",
};

const OF_SWITCH: Readonly<Record<OvsdbError["code"], NicCallErrorCode>> = {
  unreachable: "try-again",
  closed: "try-again",
  timeout: "try-again",
  malformed: "internal",
  refused: "internal",
  "no-bridge": "no-bridge",
  collision: "collision",
  "not-plugged": "try-again",
};

/** The code for the runtime of a failure of NICs; of several, that of the first. `undefined`: it has none of its own. */
export function kindOf(error: unknown): NicCallErrorCode | undefined {
  if (error instanceof NicCniError) return OF_NETWORK[error.code];
  if (error instanceof OvsdbError) return OF_SWITCH[error.code];
  if (error instanceof AggregateError) return error.errors.map(kindOf).find((kind) => kind !== undefined);
  return undefined;
}
