import { vxlanDriver } from "./index.ts";
import { driverClaims, originClaims, ruleClaims } from "./testing/claims.ts";

driverClaims(vxlanDriver);
ruleClaims(vxlanDriver);
originClaims(vxlanDriver);
