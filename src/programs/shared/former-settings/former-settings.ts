import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { replaceFile } from "#base/file";
import { isKernelError, type SysctlPort } from "#kernel/net";

/** The settings that every `coild` with address management needs. */
export const FORWARDING_KEYS = ["net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"] as const;

/** A setting of the host that `coild` changes. */
interface Setting {
  readonly key: RegExp;
  /** The values that it can have. */
  readonly values: RegExp;
}

const SETTINGS: readonly Setting[] = [
  { key: /^net\/ipv4\/ip_forward$/, values: /^[01]$/ },
  { key: /^net\/ipv6\/conf\/all\/forwarding$/, values: /^[01]$/ },
  { key: /^net\/ipv6\/conf\/(?!\.{1,2}\/)[^/\s]{1,15}\/accept_ra$/, values: /^[012]$/ },
];

/** Pure: the file beside the socket with the values that the host had before the first `coild` since its boot. */
export function formerSettingsPath(socket: string): string {
  return join(dirname(socket), "coild.former.json");
}

/**
 * Records the values of settings that `coild` is about to change; values that an earlier change recorded stay. /run is empty after a boot, as
 * the settings are what they were. Throws `FileError`.
 */
export function recordFormerSettings(path: string, sysctl: Pick<SysctlPort, "get">, keys: readonly string[]): void {
  const known = readFormerSettings(path);
  const values = keys.flatMap((key) => {
    const value = key in known ? undefined : readSetting(sysctl, key);
    return value === undefined ? [] : [[key, value] as const];
  });
  if (values.length === 0) return;
  replaceFile(path, `${JSON.stringify({ ...known, ...Object.fromEntries(values) })}\n`, { mode: 0o600 });
}

/**
 * The recorded values by their keys, in the order in which they were recorded; none without a record, or with one that is none. Only keys
 * that `coild` changes count.
 */
export function readFormerSettings(path: string): Readonly<Record<string, string>> {
  try {
    const found: unknown = JSON.parse(readFileSync(path, "utf8"));
    if (typeof found !== "object" || found === null) return {};
    const recorded = Object.entries(found).filter(
      ([key, value]) =>
        typeof value === "string" && SETTINGS.some((setting) => setting.key.test(key) && setting.values.test(value)),
    );
    return Object.fromEntries(recorded);
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
