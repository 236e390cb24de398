import { readFileSync } from "node:fs";
import type { IpFamily } from "#base/ip";
import type { Logger } from "#base/log";
import { isKernelError } from "#kernel/errors";
import { createAnonymousNetNs, type NetNs } from "#kernel/netns";
import { openNft } from "#kernel/nft";
import { openNftElements } from "#kernel/nft-elements";
import { checkConstructs } from "../dataplane/index.ts";
import { HostError } from "./errors.ts";

/** The oldest kernel that is known to do all that kube-proxy's nftables mode needs (docs/spec/service-proxy.md#2.10). */
const MIN_KERNEL = { major: 5, minor: 13 } as const;
/** kube-proxy's name for it: any text lets an older kernel be tried. */
export const SKIP_VERSION_CHECK = "KUBE_PROXY_NFTABLES_SKIP_KERNEL_VERSION_CHECK";

/** Pure but for the log. Throws {@link HostError} `kernel-too-old`. `release` is as `uname -r` has it. */
export function checkKernelVersion(
  release: string,
  { env, log }: { readonly env: Readonly<Record<string, string | undefined>>; readonly log: Logger },
): void {
  const wanted = `${MIN_KERNEL.major}.${MIN_KERNEL.minor}`;
  const match = /^(\d{1,4})\.(\d{1,4})/.exec(release);
  if (match === null) {
    log.warn("the kernel's version cannot be read; going on", { release, wanted: `${wanted} or newer` });
    return;
  }
  const [major, minor] = [Number(match[1]), Number(match[2])];
  if (major > MIN_KERNEL.major || (major === MIN_KERNEL.major && minor >= MIN_KERNEL.minor)) return;
  if ((env[SKIP_VERSION_CHECK] ?? "") !== "") {
    log.warn("the kernel is older than what Services were tried with; going on, as asked", { release, wanted });
    return;
  }
  throw new HostError(
    "kernel-too-old",
    `Cannot program Services on Linux ${release}: ${wanted} or newer is needed; ${SKIP_VERSION_CHECK}=1 tries it all the same`,
  );
}

/**
 * Tries every kind of object that the tables are made of, in a namespace that nothing can be left of (docs/spec/service-proxy.md#2.10). Rejects
 * with `DataPlaneError` that names what is refused. Where no namespace may be made, nothing is tried, and that is told.
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

/** Of this machine. */
export function kernelRelease(): string {
  return readFileSync("/proc/sys/kernel/osrelease", "utf8").trim();
}

function scratchNamespace(log: Logger): NetNs | undefined {
  try {
    return createAnonymousNetNs();
  } catch (error) {
    if (!isKernelError(error)) throw error;
    if (error.code === "not-permitted") log.info("the kernel is not tried beforehand: that takes CAP_SYS_ADMIN");
    else log.warn("the kernel is not tried beforehand: no namespace can be made", { error: error.message });
    return undefined;
  }
}
