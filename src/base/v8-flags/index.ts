/**
 * Flags of V8 that are set while it runs, and the one switch that leaves all of them alone (docs/decisions/0012-flags-of-a-running-v8.md).
 *
 * Owns: the switch, and the call that sets them. Does not know: which flags, and why; the callers say so.
 *
 * ```ts
 * setV8Flag("--optimize-for-size");
 * ```
 */
export { setsV8Flags, setV8Flag } from "./v8-flags.ts";
