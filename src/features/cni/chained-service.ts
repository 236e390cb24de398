import type { AbortOptions } from "#base/async";
import { IpAddress } from "#base/ip";
import type { CniResult, NetworkConfig } from "#wire/cni";
import type { CniArgs } from "#wire/cnirpc";
import type { ClientDeps } from "./client-deps.ts";
import { CniFailure } from "./failure.ts";
import type { FoundPod, PodIdentity } from "./pod-identity.ts";

/** An interface that the plugin before coil made, with its pod. */
export interface ChainedAttachment {
  readonly pod: PodIdentity;
  readonly netns: string;
  readonly ifname: string;
  /** The first address of each family of prevResult. */
  readonly ipv4: IpAddress | undefined;
  readonly ipv6: IpAddress | undefined;
}

/** The network of a coild without address management (docs/spec/pod-network.md#5.3). Rejects with {@link CniFailure}. */
export interface ChainedDeps {
  /** Marks the interface as the pod's. Idempotent; changes nothing else of the node. */
  readonly adopt: (attachment: ChainedAttachment, options: AbortOptions) => Promise<void>;
  /** The UID of the pod that the interface is marked for; `undefined` if it has no mark. */
  readonly ownerOf: (at: Pick<ChainedAttachment, "netns" | "ifname">) => Promise<string | undefined>;
  /** Checks the mark of the interface. Rejects with an error that names the first missing part. */
  readonly check: (attachment: ChainedAttachment, expected: CniResult) => Promise<void>;
}

/** ADD behind another plugin: it makes no interface, and returns prevResult. A pod that names an Egress gets its NAT client. */
export async function addChained(
  deps: { readonly chained: ChainedDeps; readonly clients?: ClientDeps | undefined },
  at: { readonly args: CniArgs; readonly config: NetworkConfig; readonly findPod: () => Promise<FoundPod> },
  options: AbortOptions,
): Promise<CniResult> {
  const prevResult = requirePrevResult(at.config);
  const link = linkOf(at.args, prevResult);
  const request = { ...link, pod: await at.findPod() };
  await deps.chained.adopt(request, options);
  await deps.clients?.setUp(request, options);
  return prevResult;
}

/** CHECK behind another plugin. `named` is the pod as the runtime names it, if it tells a UID. */
export async function checkChained(
  deps: ChainedDeps,
  at: {
    readonly args: CniArgs;
    readonly config: NetworkConfig;
    readonly named: PodIdentity | undefined;
    readonly findPod: () => Promise<PodIdentity>;
  },
): Promise<void> {
  const prevResult = requirePrevResult(at.config);
  const link = linkOf(at.args, prevResult);
  await deps.check({ ...link, pod: await checkedPod(deps, { ...at, link }) }, prevResult);
}

/** The pod whose mark is looked for. The Pod is read where the mark has another UID than the runtime tells, as of a static pod. */
async function checkedPod(
  deps: Pick<ChainedDeps, "ownerOf">,
  at: {
    readonly link: Pick<ChainedAttachment, "netns" | "ifname">;
    readonly named: PodIdentity | undefined;
    readonly findPod: () => Promise<PodIdentity>;
  },
): Promise<PodIdentity> {
  if (at.named === undefined) return at.findPod();
  const owner = await deps.ownerOf(at.link);
  return owner === undefined || owner === at.named.uid ? at.named : at.findPod();
}

function requirePrevResult({ prevResult }: NetworkConfig): CniResult {
  if (prevResult !== undefined) return prevResult;
  throw new CniFailure(
    "invalid-config",
    "prevResult is missing: coild runs with --enable-ipam=false, so coil must be behind the plugin that makes the pod's interface",
  );
}

function linkOf(args: CniArgs, prevResult: CniResult): Omit<ChainedAttachment, "pod"> {
  const addresses = prevResult.ips.map(({ address }) => {
    const parsed = IpAddress.tryParse(address.split("/")[0] ?? "");
    if (parsed !== undefined) return parsed;
    throw new CniFailure("invalid-config", `prevResult: "${address}" of ips is not an address`);
  });
  if (addresses.length === 0)
    throw new CniFailure(
      "invalid-config",
      "prevResult has no ips: the plugin before coil assigned no address to the pod",
    );
  const ofFamily = (family: 4 | 6): IpAddress | undefined => addresses.find((one) => one.family === family);
  return { netns: args.netns, ifname: args.ifname, ipv4: ofFamily(4), ipv6: ofFamily(6) };
}
