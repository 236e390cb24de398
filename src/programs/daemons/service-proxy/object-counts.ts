import type { IpFamily } from "#base/ip";
import type { SyncMetrics } from "#features/service-health";
import type { FamilyProxy } from "#features/service-proxy";

/**
 * Sets the metrics that are numbers of objects in a family's table; to be called after each successful sync. While the content of the table is not
 * known they stay as they are.
 */
export function countObjects(
  syncs: Pick<SyncMetrics, "noLocalEndpoints" | "objects">,
  family: IpFamily,
  { counts }: Pick<FamilyProxy["plane"], "counts">,
): void {
  if (counts === undefined) return;
  syncs.noLocalEndpoints(family, "internal", counts.noLocalInternal);
  syncs.noLocalEndpoints(family, "external", counts.noLocalExternal);
  syncs.objects(family, "frontend", counts.frontEnds);
  syncs.objects(family, "endpoint", counts.endpoints);
}
