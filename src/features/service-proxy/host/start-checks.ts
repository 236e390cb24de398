import { readFileSync } from "node:fs";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import { createAnonymousNetNs, type NetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { checkConstructs } from "../dataplane/index.ts";
import { HostError } from "./errors.ts";

/** The oldest kernel that supports all features that kube-proxy's nftables mode needs (docs/spec/service-proxy.md#2.10). */
const MIN_KERNEL = { major: 5, minor: 13 } as const;
/** kube-proxy's environment variable: if it is set and not empty, an older kernel is tried. */
export const SKIP_VERSION_CHECK = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";

/** Checks the kernel's version. `release`: the output of `uname -r`. Throws {@link HostError} `kernel-too-old`. Pure but for the log. */
export function checkKernelVersion(
  release: string,
  { env, log }: { readonly env: Readonly<Record<string, string | undefined>>; readonly log: Logger },
): void {
  const wanted = `${MIN_KERNEL.major}.${MIN_KERNEL.minor}`;
  const match = /^(\d{1,4})\.(\d{1,4})/.exec(release);
  if (match === null) {
    log.warn("the kernel's version cannot be read; the start continues", { release, wanted: `${wanted} or newer` });
    return;
  }
  const [major, minor] = [Number(match[1]), Number(match[2])];
  if (major > MIN_KERNEL.major || (major === MIN_KERNEL.major && minor >= MIN_KERNEL.minor)) return;
  if ((env[SKIP_VERSION_CHECK] ?? "") !== "") {
    log.warn(
      "the kernel is older than the oldest supported one; the start continues, because the configuration allows it",
      { release, wanted },
    );
    return;
  }
  throw new HostError(
    "kernel-too-old",
    `Cannot program Services on Linux ${release}: ${wanted} or newer is needed; ${SKIP_VERSION_CHECK}=1 allows this kernel`,
  );
}

/**
 * Tries every kind of object that the tables need, in a network namespace that is thrown away (docs/spec/service-proxy.md#2.10). Rejects
 * with `DataPlaneError`, which names the refused object. If this process may not make a namespace, logs that and tries nothing.
 */
export async function tryConstructs(families: readonly IpFamily[], log: Logger): Promise<void> {
  for (const family of families) {
    using ns = scratchNamespace(log);
    if (ns === undefined) return;
    using nft = openNft(ns);
    using elements = openNftElements(ns);
    await checkConstructs({ nft, elements }, family);
  }
}

/** Kernel release of this machine. */
export function kernelRelease(): string {
  return readFileSync("/proc/sys/kernel/osrelease", "utf8").trim();
}

function scratchNamespace(log: Logger): NetNs | undefined {
  try {
    return createAnonymousNetNs();
  } catch (error) {
    if (!isKernelError(error)) throw error;
    if (error.code === "not-permitted")
      log.info("the kernel's features are not checked: the check needs CAP_SYS_ADMIN");
    else log.warn("the kernel's features are not checked: no network namespace can be made", { error: error.message });
    return undefined;
  }
}
