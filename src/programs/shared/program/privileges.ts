import { readFileSync } from "node:fs";
import { ExpectedError } from "#base/errors";

/** Thrown if this process lacks a capability. */
export class PrivilegeError extends ExpectedError<"not-permitted"> {
  override readonly name = "PrivilegeError";
}

/** Bits of linux/capability.h. */
const BITS = { CAP_NET_ADMIN: 12, CAP_NET_RAW: 13, CAP_SYS_ADMIN: 21 } as const;
export type Capability = keyof typeof BITS;

/** The capabilities that a program needs, and its work in words, such as "create the links of pods". */
export interface Privileges {
  readonly task: string;
  readonly needs: readonly Capability[];
}

/** The capabilities that network namespaces, links and pings in them need. */
export const LAB_CAPABILITIES: readonly Capability[] = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"];

/** Throws {@link PrivilegeError} in one line if this process lacks a capability that `task` ("make network namespaces") needs. */
export function requirePrivileges(task: string, needed: readonly Capability[]): void {
  const status = readFileSync("/proc/self/status", "utf8");
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  const missing = needed.filter((name) => ((effective >> BigInt(BITS[name])) & 1n) === 0n);
  if (missing.length === 0) return;
  throw new PrivilegeError("not-permitted", `cannot ${task}: this process lacks ${missing.join(", ")}: run it as root`);
}
