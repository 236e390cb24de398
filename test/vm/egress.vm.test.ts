import { fouDriver } from "#features/egress";
import { loadModules } from "#kernel/modules";
import {
  auditClaims,
  bulkClaims,
  driverClaims,
  familyClaims,
  flowClaims,
  ipv6OffClaims,
  mtuClaims,
  originClaims,
  portClaims,
  smallMtuClaims,
  sourcePortClaims,
} from "../../src/features/egress/testing/claims.ts";

await loadModules(["fou", "fou6"]);
driverClaims(fouDriver);
familyClaims(fouDriver);
mtuClaims(fouDriver);
ipv6OffClaims(fouDriver);
smallMtuClaims(fouDriver);
// The emulated processor takes half a second for each.
bulkClaims(fouDriver, 10);
originClaims(fouDriver);
flowClaims(fouDriver);
portClaims(fouDriver);
sourcePortClaims(fouDriver);
auditClaims(fouDriver);
