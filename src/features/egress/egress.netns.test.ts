import { vxlanDriver } from "./index.ts";
import {
  bulkClaims,
  driverClaims,
  familyClaims,
  flowClaims,
  originClaims,
  otherFilterClaims,
  portClaims,
  ruleClaims,
} from "./testing/claims.ts";

driverClaims(vxlanDriver);
familyClaims(vxlanDriver);
bulkClaims(vxlanDriver, 100);
ruleClaims(vxlanDriver);
originClaims(vxlanDriver);
portClaims(vxlanDriver);
otherFilterClaims(vxlanDriver);
flowClaims(vxlanDriver);
