import { runPath } from "#base/file";
import type { NicNetworkConfig } from "./request.ts";

/** Keys of a network's configuration whose values reach beyond the pod: those of the node's operator count, as who writes a configuration may be a tenant. */
export const OPERATOR_KEYS = ["ovsdb", "integrationBridge", "plugMode", "vmOwnerUid", "nsPrefix"] as const;
export type OperatorKey = (typeof OPERATOR_KEYS)[number];

/** The settings of the node's operator. */
export interface OperatorSettings {
  /** The agent's own values, as texts of {@link canonical}. */
  readonly values: Readonly<Record<OperatorKey, string>>;
  /** Further values that a configuration may have, as `KEY=VALUE`. */
  readonly allowed: ReadonlySet<string>;
}

/** One spelling of a value. Pure. */
export function canonical(key: OperatorKey, value: string | number): string {
  return key === "ovsdb" ? runPath(String(value).replace(/^unix:/, "")) : String(value);
}

/** The settings from the agent's own values and the allowed ones, which {@link parseAllowed} has read. Pure. */
export function operatorSettings(
  own: Readonly<Record<OperatorKey, string | number>>,
  allowed: Iterable<string>,
): OperatorSettings {
  const values = Object.fromEntries(OPERATOR_KEYS.map((key) => [key, canonical(key, own[key])]));
  return { values: values as Record<OperatorKey, string>, allowed: new Set(allowed) };
}

/**
 * Parses `KEY=VALUE` of `--allow-configuration`. Returns `undefined` if the key is none of {@link OPERATOR_KEYS}, or the value is empty. Pure.
 */
export function parseAllowed(text: string): string | undefined {
  const at = text.indexOf("=");
  const key = OPERATOR_KEYS.find((one) => one === text.slice(0, at));
  const value = text.slice(at + 1);
  return key === undefined || at < 0 || value === "" ? undefined : `${key}=${canonical(key, value)}`;
}

/** The keys of a configuration whose values the operator has not allowed. Pure. */
export function refusedKeys(
  config: Pick<NicNetworkConfig, OperatorKey>,
  { values, allowed }: OperatorSettings,
): readonly OperatorKey[] {
  return OPERATOR_KEYS.filter((key) => {
    const given = config[key];
    if (given === undefined) return false;
    const text = canonical(key, given);
    return text !== values[key] && !allowed.has(`${key}=${text}`);
  });
}
