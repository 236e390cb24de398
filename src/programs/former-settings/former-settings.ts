import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { replaceFile } from "#base/file";
import { isKernelError, type SysctlPort } from "#kernel/net";

/** The settings of the host that `coild` changes. */
const KEYS = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] as const;

/** Pure: the file beside the socket with the values that the host had before the first `coild` since its boot. */
export function formerSettingsPath(socket: string): string {
  return join(dirname(socket), "coild.former.json");
}

/**
 * Records the values of the settings that `coild` is about to change, unless an earlier start did. /run is empty after a boot, as the
 * settings are what they were. Throws `FileError`.
 */
export function recordFormerSettings(path: string, sysctl: Pick<SysctlPort, "get">): void {
  if (Object.keys(readFormerSettings(path)).length > 0) return;
  const values = KEYS.flatMap((key) => {
    const value = readSetting(sysctl, key);
    return value === undefined ? [] : [[key, value] as const];
  });
  replaceFile(path, `${JSON.stringify(Object.fromEntries(values))}\n`, { mode: 0o600 });
}

/** The recorded values by their keys; none without a record, or with one that is none. Only keys that `coild` changes count. */
export function readFormerSettings(path: string): Readonly<Record<string, string>> {
  try {
    const found = JSON.parse(readFileSync(path, "utf8")) as Readonly<Record<string, unknown>> | null;
    return Object.fromEntries(
      KEYS.flatMap((key) => {
        const value = found?.[key];
        return typeof value === "string" && /^[01]$/.test(value) ? [[key, value] as const] : [];
      }),
    );
  } catch (error) {
    if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === "ENOENT") return {};
    throw error;
  }
}

/** `undefined` on a kernel without the setting. */
function readSetting(sysctl: Pick<SysctlPort, "get">, key: string): string | undefined {
  try {
    return sysctl.get(key);
  } catch (error) {
    if (isKernelError(error)) return undefined;
    throw error;
  }
}
