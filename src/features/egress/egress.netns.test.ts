import { vxlanDriver } from "./index.ts";
import { driverClaims, ruleClaims } from "./testing/claims.ts";

driverClaims(vxlanDriver);
ruleClaims(vxlanDriver);
