import { ExpectedError } from "#base/errors";
import { IpAddress, type IpFamily } from "#base/ip";
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
/** The kind of links of each family, and the module without which the kernel refuses to have them carried by FoU. */
const FOU = {
  4: { kind: "ipip", module: "fou", local: IpAddress.parse("192.0.2.1"), remote: IpAddress.parse("192.0.2.2") },
  6: { kind: "ip6tnl", module: "fou6", local: IpAddress.parse("2001:db8::1"), remote: IpAddress.parse("2001:db8::2") },
} as const;
const ENCAP = { type: "fou", sourcePort: 0, destinationPort: 5555 } as const;

/**
 * The driver that was asked for, or for `auto` FoU if this kernel has all that it needs, else VXLAN; `loadDriverModules` should come before. `families`: those that tunnels are for; default:
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
  const ofLinks = families.flatMap((family) => {
    const { kind, module, local, remote } = FOU[family];
    if (!hasKind(net, { kind, name: PROBE, external: true })) return [kind];
    return isCarried(net, { kind, name: PROBE, local, remote, encap: ENCAP }) ? [] : [module];
  });
  return [...new Set([...(net.fou.available() ? [] : ["fou"]), ...ofLinks])];
}

type Spec = Parameters<NetStack["links"]["create"]>[0];

/** Returns true if the kernel makes a link of this kind, loading its module if it can. */
function hasKind(net: Pick<NetStack, "links">, spec: Spec): boolean {
  return makes(net, spec, "unsupported");
}

/** Returns true if the kernel makes a link of a kind that it has in FoU. It does not tell that a module is missing, but that the link is not valid. */
function isCarried(net: Pick<NetStack, "links">, spec: Spec): boolean {
  return makes(net, spec, "invalid");
}

function makes({ links }: Pick<NetStack, "links">, spec: Spec, refusal: "unsupported" | "invalid"): boolean {
  try {
    links.delete(links.create(spec).index);
    return true;
  } catch (error) {
    if (!isKernelError(error, refusal)) throw error;
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
