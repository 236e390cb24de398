import { applyCutOff, planCutOff } from "./cut-off.ts";
import { isMarkedCutOff } from "./link-groups.ts";
import type { AttachedPod } from "./listing.ts";
import type { Attachment, Parts } from "./parts.ts";

/** The attachments that were changed, and those that stay cut off because it is not known whether they are lost. */
export interface CutOffResult {
  readonly cut: readonly Attachment[];
  readonly joined: readonly Attachment[];
  readonly kept: readonly Attachment[];
  readonly failures: readonly unknown[];
}

/** See {@link PodNetwork.cutOff}. */
export function cutOffLost(
  parts: Pick<Parts, "host" | "known">,
  attachments: readonly AttachedPod[],
  isLost: (attachment: Attachment) => boolean | undefined,
): CutOffResult {
  const links = new Map(parts.host.links.list().map((link) => [link.index, link] as const));
  const byIndex = new Map(attachments.map((one) => [one.ifindex, one] as const));
  const wanted = attachments.flatMap((one) => {
    const link = links.get(one.ifindex);
    return link === undefined ? [] : [{ link, cutOff: isLost(one) }];
  });
  const failures: unknown[] = [];
  const kept = wanted
    .filter(({ link, cutOff }) => cutOff === undefined && isMarkedCutOff(link))
    .flatMap(({ link }) => byIndex.get(link.index) ?? [])
    .map(({ containerId, ifname }) => ({ containerId, ifname }));
  const done = { cut: [] as Attachment[], joined: [] as Attachment[], kept, failures };
  for (const step of planCutOff(wanted)) {
    const { containerId = "", ifname = "" } = byIndex.get(step.link.index) ?? {};
    try {
      applyCutOff(parts.host.links, step);
      parts.known.setGroup(step.link.index, step.group);
      (step.op === "cut" ? done.cut : done.joined).push({ containerId, ifname });
    } catch (error) {
      failures.push(error);
    }
  }
  return done;
}
