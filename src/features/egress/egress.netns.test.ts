import { vxlanDriver } from "./index.ts";
import { driverClaims, originClaims, portClaims, ruleClaims } from "./testing/claims.ts";

driverClaims(vxlanDriver);
ruleClaims(vxlanDriver);
originClaims(vxlanDriver);
portClaims(vxlanDriver);
