import { vxlanDriver } from "#features/egress";
import { lostRouterClaims } from "./lost-router-claims.ts";

lostRouterClaims(vxlanDriver);
