import type { AbortOptions } from "#base/async";
import type { Logger } from "#base/log";
import { loadModules } from "#kernel/modules";
import type { Kernel } from "#kernel/net";
import type { TUNNEL_DRIVERS } from "./choose.ts";

/** FoU, and FoU for IPv6. The kernel loads the modules of links by itself when one is made, and has no such request for these. */
const FOU_MODULES = { first: "fou", ofIpv6: "fou6" } as const;

/**
 * Loads the kernel modules that `chooseDriver` needs loaded, as far as this system has them: what the kernel then lacks is for `chooseDriver` to tell. `auto` takes
 * what the kernel has, so it loads no `fou`: a client that chose FoU because its program had just loaded it would not reach the routers, of this release or the one
 * before, that started without it and chose VXLAN. Where somebody has loaded `fou` it gets `fou6` besides. Rejects with the signal's reason; throws `KernelError`.
 */
export async function loadDriverModules(
  asked: (typeof TUNNEL_DRIVERS)[number],
  {
    kernel,
    log,
    signal,
    load = loadModules,
  }: AbortOptions & {
    readonly kernel: Pick<Kernel, "openNetNs" | "openStack">;
    readonly log: Logger;
    /** Default: modprobe(8). */
    readonly load?: typeof loadModules;
  },
): Promise<void> {
  if (asked === "vxlan") return;
  const { first, ofIpv6 } = FOU_MODULES;
  if (asked === "auto" && !hasFou(kernel)) return;
  const modules = asked === "auto" ? [ofIpv6] : [first, ofIpv6];
  const refused = await load(modules, { signal });
  // A kernel may have both built in.
  if (refused !== undefined) log.debug("kernel modules were not loaded", { modules, refused });
}

function hasFou(kernel: Pick<Kernel, "openNetNs" | "openStack">): boolean {
  using own = kernel.openNetNs("own");
  using stack = kernel.openStack(own);
  return stack.fou.available();
}
