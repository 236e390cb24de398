import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { loadModules } from "#kernel/modules";
import type { TUNNEL_DRIVERS } from "./choose.ts";

/** FoU, and FoU for IPv6. The kernel loads the modules of links by itself when one is made, and has no such request for these. */
const FOU_MODULES = ["fou", "fou6"];

/**
 * Loads the kernel modules that `chooseDriver` needs loaded, as far as this system has them: what the kernel then lacks is for `chooseDriver` to tell. Rejects
 * with the signal's reason.
 */
export async function loadDriverModules(
  asked: (typeof TUNNEL_DRIVERS)[number],
  { log, signal }: AbortOptions & { readonly log: Logger },
): Promise<void> {
  if (asked === "vxlan") return;
  const refused = await loadModules(FOU_MODULES, { signal });
  // A kernel may have both built in.
  if (refused !== undefined) log.debug("kernel modules were not loaded", { modules: FOU_MODULES, refused });
}
