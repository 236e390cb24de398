/**
 * A data plane that plans, and encodes all plans, without a kernel.
 *
 * ```ts
 * const plane = new EncodingPlane({ nft: new FakeNft(), elements, generations: new GenerationTracker(elements) }, { ...rules, tableName: "t" });
 * plane.services; // comments of the front ends that the last sync would have written
 * ```
 */
import { DataPlane, type SyncReport, type WantedState } from "#features/service-proxy";
import { ElementBatch } from "#kernel/nft-elements";
import { changeFrontEnd } from "../../src/features/service-proxy/plan/index.ts";

export class EncodingPlane extends DataPlane {
  services = new Set<string>();
  cidrs = "";

  override async sync(wanted: WantedState): Promise<SyncReport> {
    const batch = (): ElementBatch => new ElementBatch(this.table, { record: false });
    const phases = { add: batch(), switch: batch(), remove: batch() };
    this.services = new Set();
    for (const [, frontEnd] of wanted.services.frontEnds()) {
      changeFrontEnd(undefined, frontEnd, phases);
      this.services.add(frontEnd.service);
    }
    this.cidrs = wanted.serviceCIDRs.join(" ");
    return { kind: "full", changes: 0, drift: 0, isRepair: false, transactions: 0, bytes: 0 };
  }
}
