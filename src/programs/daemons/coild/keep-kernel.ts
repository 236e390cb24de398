import type { Dirty } from "#base/async";
import type { HealthPart } from "#base/health";
import type { IpAddress } from "#base/ip";
import { reconcile } from "#base/reconcile";
import type { NodeIpam } from "#features/ipam";
import type { PodNetwork, Remade, Survey } from "#features/pod-network";
import type { GuardKeeper } from "./guard-keeper.ts";
import type { LostAttachments } from "./lost-attachments.ts";

/**
 * The interval of surveys of the kernel, in milliseconds. They find what other programs do: flush tables, set links down, change aliases.
 */
const RESYNC_MS = 10_000;

/** Updates the memory from the kernel: see {@link NodeIpam.remember}. */
export function rememberKernel(
  { network, ipam }: { readonly network: PodNetwork; readonly ipam: NodeIpam },
  options: { readonly registerFromMain: boolean; readonly waiting?: Remade["waiting"] },
): ReturnType<PodNetwork["survey"]> {
  const survey = network.survey(options);
  ipam.remember(survey.attached, survey.unowned, [...survey.bare, ...survey.pending, ...(options.waiting ?? [])]);
  return survey;
}

type AttachmentName = Survey["pending"][number];

/** The dependencies of one pass over the kernel. */
interface KeeperParts {
  readonly network: PodNetwork;
  readonly ipam: NodeIpam;
  readonly lost: Pick<LostAttachments, "report">;
  /** Called after each survey with the numbers of restored objects. */
  readonly onSurveyed: (repaired: { readonly host: number; readonly links: number; readonly pods: number }) => void;
  /** `undefined`: nothing is guarded. */
  readonly guard?: Pick<GuardKeeper, "keep"> | undefined;
  /** Called for each link that was made again. */
  readonly onRemade: (attachment: Remade["made"][number]) => void;
}

/** Keeps the memory equal to the kernel and restores missing objects of the pods' network, until the signal aborts. */
export async function keepKernel(
  parts: KeeperParts & {
    /** Marked when the set of this node's blocks has changed, or an object was removed. */
    readonly dirty: Dirty;
    readonly health: HealthPart;
  },
  options: { readonly registerFromMain: boolean; readonly signal: AbortSignal },
): Promise<void> {
  // The health part is ready before the first repair, so that a repair that fails does not delay an ADD.
  parts.health.ok();
  await reconcile({
    dirty: parts.dirty,
    health: parts.health,
    signal: options.signal,
    resyncMs: RESYNC_MS,
    sync: async () => keepKernelOnce(parts, options),
  });
}

/**
 * One pass of {@link keepKernel}; returns the number of repairs. It awaits nothing: an ADD or DEL during it would look like a change by
 * another program. Throws the first failure, after everything was tried.
 */
export function keepKernelOnce(parts: KeeperParts, options: { readonly registerFromMain: boolean }): number {
  const { network, ipam, lost } = parts;
  // A link is made again before the survey; otherwise the survey would treat its attachment as deleted.
  const remade = network.remake((one) => ipam.assigned(one) !== undefined && ipam.isLost(one) !== true);
  for (const attachment of remade.made) parts.onRemade(attachment);
  const survey = rememberKernel(parts, { ...options, waiting: remade.waiting });
  const host = network.initHost();
  const failures = [...remade.failures, ...cutOffLost(survey, { network, ipam, lost })];
  const links = remade.made.length;
  const addressesOf = (attachment: AttachmentName): readonly IpAddress[] | undefined => {
    const own = ipam.assigned(attachment);
    return own && [own.ipv4, own.ipv6].filter((address) => address !== undefined);
  };
  parts.guard?.keep(survey, addressesOf);
  const settings = network.repairSettings(survey);
  failures.push(...settings.failures);
  const pods = network.repair(survey, addressesOf);
  parts.onSurveyed({ host, links, pods });
  if (failures.length > 0) throw failures[0];
  return host + links + pods + settings.changes;
}

/** Cuts off lost attachments, connects attachments again whose blocks belong to this node again, and reports both. Returns the failures. */
function cutOffLost(
  survey: Survey,
  { network, ipam, lost }: Pick<KeeperParts, "network" | "ipam" | "lost">,
): readonly unknown[] {
  const found = ipam.lost;
  const done = network.cutOff(survey, (attachment) => ipam.isLost(attachment));
  const all = [...survey.bare, ...found, ...survey.attached];
  const addresses = new Map(all.map((one) => [`${one.containerId}/${one.ifname}`, one.addresses] as const));
  lost.report(found, done, ({ containerId, ifname }) => (addresses.get(`${containerId}/${ifname}`) ?? []).map(String));
  return done.failures;
}
