import { ExpectedError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import type { Kernel, NetStack } from "#kernel/net";
import type { TunnelDriver } from "./driver.ts";
import { fouDriver } from "./fou.ts";
import { vxlanDriver } from "./vxlan.ts";

/** The values of `--tunnel-driver`. */
export const TUNNEL_DRIVERS = ["fou", "vxlan", "auto"] as const;

/** `lacking`: this kernel does not have what the driver needs. */
export type TunnelErrorCode = "lacking";

/** No tunnel can be made. The message names the driver, what the kernel lacks and the fix. */
export class TunnelError extends ExpectedError<TunnelErrorCode> {
  override readonly name = "TunnelError";
}

const PROBE = "coil_probe";

/**
 * The driver that was asked for, or for `auto` FoU if this kernel has all that it needs, else VXLAN. `families`: those that tunnels are for; default:
 * the kernel's. Makes a link of each needed kind, which takes up to 20 ms each, in a namespace of its own: a router's, which may be that of a container that
 * ran before, has one `external` link of a kind, and the kernel refuses a second one. Needs CAP_SYS_ADMIN. Throws {@link TunnelError} and `KernelError`.
 */
export function chooseDriver(
  kernel: Pick<Kernel, "createAnonymousNetNs" | "openStack">,
  asked: (typeof TUNNEL_DRIVERS)[number],
  families?: readonly IpFamily[],
): { readonly driver: TunnelDriver; readonly lacking: readonly string[] } {
  using netns = kernel.createAnonymousNetNs();
  using net = kernel.openStack(netns);
  const lacking = asked === "vxlan" ? [] : lackingForFou(net, families ?? (hasIpv6(net) ? [4, 6] : [4]));
  if (asked !== "vxlan" && lacking.length === 0) return { driver: fouDriver, lacking };
  if (asked === "fou") {
    const fix =
      "load these modules (package linux-modules-extra on some systems), or choose --tunnel-driver=vxlan or auto";
    throw new TunnelError("lacking", `--tunnel-driver=fou: this kernel has no ${lacking.join(", no ")}: ${fix}`);
  }
  if (!hasKind(net, { kind: "vxlan", name: PROBE, external: true, port: 4789 })) {
    const all = ["vxlan", ...lacking].join(", no ");
    throw new TunnelError("lacking", `--tunnel-driver=${asked}: this kernel has no ${all}: load one of these modules`);
  }
  return { driver: vxlanDriver, lacking };
}

function lackingForFou(net: Pick<NetStack, "fou" | "links">, families: readonly IpFamily[]): string[] {
  const kinds = families.map((family) => (family === 4 ? "ipip" : "ip6tnl"));
  return [
    ...(net.fou.available() ? [] : ["fou"]),
    ...kinds.filter((kind) => !hasKind(net, { kind, name: PROBE, external: true })),
  ];
}

/** Whether the kernel makes a link of this kind, loading its module if it can. */
function hasKind(net: Pick<NetStack, "links">, spec: Parameters<NetStack["links"]["create"]>[0]): boolean {
  try {
    const { index } = net.links.create(spec);
    net.links.delete(index);
    return true;
  } catch (error) {
    if (!isKernelError(error, "unsupported")) throw error;
    return false;
  }
}

function hasIpv6({ sysctl }: Pick<NetStack, "sysctl">): boolean {
  try {
    sysctl.get("net.ipv6.conf.all.disable_ipv6");
    return true;
  } catch (error) {
    if (!isKernelError(error, "not-found")) throw error;
    return false;
  }
}
