import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import { routerSettings, type SysctlPort } from "#kernel/sysctl";

/** A setting of a pod's link that differs from the one of a new link, as plain data. */
export interface SettingStep {
  readonly key: string;
  readonly value: string;
}

/** Pure: the setting by which the host forwards IPv4 packets that come in by a link. IPv6 forwards by the value for all links alone. */
export function forwardingSetting(link: string): readonly [key: string, value: string] {
  return [`net/ipv4/conf/${link}/forwarding`, "1"];
}

/** Pure: the settings of the host's end of a pod's link: the host forwards the pod's packets, and the pod is no router. */
function hostEndSettings(link: string, options: { readonly ipv6: boolean }) {
  return [forwardingSetting(link), ...routerSettings(link, options)];
}

/**
 * The settings that pods' links lack, by which the host forwards for pods and pods are no routers (docs/spec/pod-network.md#5.5): of links of an earlier version, and of Coil, and of those whose
 * settings another program has overwritten, as rules of udev do after a link appears. Reads only; a setting that this kernel does not have is none.
 */
export function planSettings(
  sysctl: Pick<SysctlPort, "get">,
  links: Iterable<{ readonly link: Pick<Link, "name">; readonly ipv6: boolean }>,
): SettingStep[] {
  const steps: SettingStep[] = [];
  for (const { link, ipv6 } of links)
    for (const [key, value] of hostEndSettings(link.name, { ipv6 })) {
      const now = read(sysctl, key);
      if (now !== undefined && now !== value) steps.push({ key, value });
    }
  return steps;
}

function read(sysctl: Pick<SysctlPort, "get">, key: string): string | undefined {
  try {
    return sysctl.get(key);
  } catch (error) {
    if (isKernelError(error, "not-found")) return undefined;
    throw error;
  }
}
