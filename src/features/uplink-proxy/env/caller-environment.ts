/** The launcher (tools/launcher.sh) keeps a variable that it removes for our own sake under its name with this prefix. */
const KEPT = "ISTHMUS_CALLER_";
/** Variables that the launcher adds. */
const ADDED: ReadonlySet<string> = new Set(["ISTHMUS_CALLED_AS"]);

/**
 * Pure: the environment that this program was called with, for programs of others that it starts: without the launcher's variables, and with
 * those that it has removed, such as NODE_EXTRA_CA_CERTS.
 */
export function callerEnvironment(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(env).flatMap(([name, value]) =>
    ADDED.has(name) ? [] : [[name.startsWith(KEPT) ? name.slice(KEPT.length) : name, value] as const],
  );
  return Object.fromEntries(kept);
}
