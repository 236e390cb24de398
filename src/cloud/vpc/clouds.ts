import { alcorCloud } from "./alcor/cloud.ts";
import type { Cloud } from "./cloud.ts";
import { neutronCloud } from "./neutron/cloud.ts";

/** The kinds of clouds whose VPCs pods can have NICs of. A new one is a folder beside these, and a line here. */
export const CLOUDS: readonly Cloud[] = [neutronCloud, alcorCloud];
