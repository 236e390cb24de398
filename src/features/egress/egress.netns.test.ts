import { vxlanDriver } from "./index.ts";
import {
  auditClaims,
  bulkClaims,
  driverClaims,
  familyClaims,
  flowClaims,
  ipv6OffClaims,
  mtuClaims,
  originClaims,
  otherFilterClaims,
  portClaims,
  ruleClaims,
  smallMtuClaims,
} from "./testing/claims.ts";

driverClaims(vxlanDriver);
familyClaims(vxlanDriver);
mtuClaims(vxlanDriver);
ipv6OffClaims(vxlanDriver);
smallMtuClaims(vxlanDriver);
bulkClaims(vxlanDriver, 100);
ruleClaims(vxlanDriver);
originClaims(vxlanDriver);
portClaims(vxlanDriver);
auditClaims(vxlanDriver);
otherFilterClaims(vxlanDriver);
flowClaims(vxlanDriver);
