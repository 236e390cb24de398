import { CniCode, CniError } from "#wire/cni";

type Env = Readonly<Record<string, string | undefined>>;

/**
 * True when `CNI_NETNS` is the network namespace of this process and `CNI_NETNS_OVERRIDE` (1 or true) does not allow that.
 * This function accepts a path that is not a namespace; the code that opens the path reports it. Source: libcni, pkg/skel and pkg/ns.
 */
export function isOwnNetns(env: Env): boolean {
  const path = env["CNI_NETNS"] ?? "";
  const override = env["CNI_NETNS_OVERRIDE"] ?? "";
  if (path === "" || override === "1" || override.toUpperCase() === "TRUE") return false;
  const [given, own] = [statFile(path), statFile("/proc/self/ns/net")];
  return given !== undefined && given.ino === own?.ino && given.dev === own.dev;
}

/**
 * `undefined` if the file cannot be read. The read is synchronous: coild opens the same path in the same way, and a thread pool would take
 * longer.
 */
function statFile(path: string): { readonly dev: number; readonly ino: number } | undefined {
  try {
    // The module is loaded only when it is needed; a static import would load it at every start of the executable.
    return process.getBuiltinModule("node:fs").statSync(path);
  } catch (error) {
    if (error instanceof Error && "code" in error) return undefined;
    throw error;
  }
}

/** The error for a namespace in which the pod's routes would replace the node's, code 8. */
export function ownNetnsError(env: Env): CniError {
  return new CniError(CniCode.invalidNetns, "plugin's netns and netns from CNI_NETNS should not be the same", {
    details: `CNI_NETNS is ${env["CNI_NETNS"]}; CNI_NETNS_OVERRIDE=1 allows it`,
  });
}
