import type { Logger } from "#base/log";
import type { SysctlPort } from "#kernel/net";
import { type ConntrackSettings, setKernelParameters } from "./kernel-parameters.ts";

/**
 * Tries the kernel's features, then sets its parameters. In this order: the parameters of connection tracking exist only after something has used it,
 * which on a fresh boot is the trial. Where nothing can be tried they may still be missing. Then returns what sets them again, to be called once the
 * tables are in the kernel; it logs those that are missing even so. Rejects as `tryFeatures` does.
 */
export async function prepareKernel(
  { sysctl, tryFeatures }: { readonly sysctl: SysctlPort; readonly tryFeatures: () => Promise<void> },
  settings: ConntrackSettings,
  { log }: { readonly log: Logger },
): Promise<(() => void) | undefined> {
  await tryFeatures();
  const { missing } = setKernelParameters(sysctl, settings, { log });
  if (missing.length === 0) return undefined;
  return () => {
    for (const error of setKernelParameters(sysctl, settings, { log }).missing)
      log.info("a kernel parameter could not be set and keeps its value", { error: error.message });
  };
}
