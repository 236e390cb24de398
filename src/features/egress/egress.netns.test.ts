import { vxlanDriver } from "./index.ts";
import { driverClaims, masqueradeClaims } from "./testing/claims.ts";

driverClaims(vxlanDriver);
masqueradeClaims();
