/**
 * The flags of a program: declared once as data, parsed once into a frozen typed object, all faults reported together.
 * The syntax is that of the original programs: `--name=value`, `--name value`, `--switch`,
 * `--switch=false`, Go durations (`1h0m0s`, `300ms`), `:port` and `[::]:port` addresses.
 *
 * Owns: flag syntax, help texts, the reference table. Does not know: which programs there are.
 *
 * ```ts
 * const flags = {
 *   healthAddr: addressFlag("health-addr", ":9385", "address of /healthz and /readyz"),
 *   gcInterval: durationFlag("gc-interval", "1h", "how often orphan blocks are collected"),
 * };
 * const { values } = parseFlags(flags, ["--gc-interval=30m"], {});
 * values.gcInterval; // 1_800_000
 * ```
 */
export { formatListenAddress, type ListenAddress, parseListenAddress } from "./address.ts";
export { formatDuration, parseDuration } from "./duration.ts";
export { ConfigError } from "./errors.ts";
export {
  addressFlag,
  choiceFlag,
  commaFlag,
  durationFlag,
  type Flag,
  type FlagSet,
  type FlagValues,
  ignoredFlag,
  ignoredGiven,
  integerFlag,
  listFlag,
  optionalFlag,
  parsedFlag,
  repeatedFlag,
  stringFlag,
  switchFlag,
  TIMER_MAX,
} from "./flag.ts";
export { flagHelp, flagReference } from "./help.ts";
export { parseFlags } from "./parse.ts";
