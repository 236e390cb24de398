import { fouDriver } from "#features/egress";
import {
  auditClaims,
  bulkClaims,
  driverClaims,
  familyClaims,
  originClaims,
  portClaims,
  sourcePortClaims,
} from "../../src/features/egress/testing/claims.ts";

driverClaims(fouDriver);
familyClaims(fouDriver);
// The emulated processor takes half a second for each.
bulkClaims(fouDriver, 10);
originClaims(fouDriver);
portClaims(fouDriver);
sourcePortClaims(fouDriver);
auditClaims(fouDriver);
