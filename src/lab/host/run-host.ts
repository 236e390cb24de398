import type { HostDeps, HostOptions } from "./host.ts";

/**
 * Builds a lab and keeps it running until the signal aborts, then removes all of it. If the lab cannot be built, removes its parts and
 * rejects. It loads the API server, the kubelets and the controllers only now: the commands for a lab do not need them.
 */
export async function runHost(
  deps: HostDeps,
  options: HostOptions,
  at: { readonly signal: AbortSignal },
): Promise<void> {
  const host = await import("./host.ts");
  await host.runHost(deps, options, at);
}
