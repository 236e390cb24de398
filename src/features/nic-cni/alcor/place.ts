import * as v from "valibot";
import { route, texts, whole } from "../schemas.ts";
import type { NicPlan, PlannedRoute } from "../types.ts";

/** The place where Alcor's agent makes the device of a NIC (docs/spec/vpc-nics.md#9). */
export interface AlcorPlace {
  readonly kind: "alcor";
  /** The path of the VPC's network namespace. */
  readonly netns: string;
  /** The name of the device in it. */
  readonly device: string;
  /** The time in which the device has to appear, in milliseconds. */
  readonly waitMs: number;
  readonly mizarTuning: boolean;
  /** The settings of the device before it was moved; absent until it was found. They are restored when the device goes back. */
  readonly saved?: SavedDevice;
}

/** Settings of a device that a move to another namespace drops. */
export interface SavedDevice {
  readonly mac?: string;
  readonly mtu: number;
  /** Addresses with prefix lengths. */
  readonly addresses: readonly string[];
  readonly routes: readonly PlannedRoute[];
}

/** A NIC of Alcor. */
export type AlcorNic = NicPlan<AlcorPlace>;

/** A place of the journal. */
export const alcorPlace = v.object({
  kind: v.literal("alcor"),
  netns: v.string(),
  device: v.string(),
  waitMs: whole,
  mizarTuning: v.boolean(),
  saved: v.exactOptional(
    v.object({ mac: v.exactOptional(v.string()), mtu: whole, addresses: texts, routes: v.array(route) }),
  ),
});
