import { isKernelError } from "#kernel/errors";
import type { Link } from "#kernel/link";
import { routerSettings, type SysctlPort } from "#kernel/sysctl";

/** A setting of a pod's link that differs from the one of a new link, as plain data. */
export interface SettingStep {
  readonly kind: "setting";
  readonly key: string;
  readonly value: string;
}

/**
 * The settings that pods' links lack, by which pods are no routers (docs/spec/pod-network.md#5.5): for links of an earlier version, and of Coil. These keep IPv6: at a
 * start a pod's IPv6 address may be one that is not known yet. Reads only; a setting that this kernel does not have is none.
 */
export function planSettings(
  sysctl: Pick<SysctlPort, "get">,
  links: Iterable<{ readonly link: Pick<Link, "name"> }>,
): SettingStep[] {
  const steps: SettingStep[] = [];
  for (const { link } of links)
    for (const [key, value] of routerSettings(link.name, { ipv6: true })) {
      const now = read(sysctl, key);
      if (now !== undefined && now !== value) steps.push({ kind: "setting", key, value });
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
