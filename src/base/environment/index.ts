/**
 * The environment of whoever started us, for programs that we start for him.
 *
 * Owns: what the launcher (tools/launcher.sh) has taken from it and added to it. Does not know: which programs are started.
 *
 * ```ts
 * spawn(command, args, { env: callersEnvironment(process.env) });
 * ```
 */
export { callersEnvironment, keptVariable } from "./callers.ts";
