import { readFileSync } from "node:fs";
import { ExpectedError } from "#base/errors";

/** What may not be done without root. */
export class PrivilegeError extends ExpectedError<"not-permitted"> {
  override readonly name = "PrivilegeError";
}

/** Bits of linux/capability.h. */
const NEEDED = { CAP_NET_ADMIN: 12, CAP_NET_RAW: 13, CAP_SYS_ADMIN: 21 } as const;

/** Throws {@link PrivilegeError}, one line, when this process lacks what namespaces and links need. */
export function requirePrivileges(): void {
  const status = readFileSync("/proc/self/status", "utf8");
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? "0"}`);
  const missing = Object.entries(NEEDED)
    .filter(([, bit]) => ((effective >> BigInt(bit)) & 1n) === 0n)
    .map(([name]) => name);
  if (missing.length === 0) return;
  throw new PrivilegeError(
    "not-permitted",
    `cannot make network namespaces: this process lacks ${missing.join(", ")}: run it as root`,
  );
}
