import { fouDriver } from "#features/egress";
import {
  bulkClaims,
  driverClaims,
  familyClaims,
  originClaims,
  portClaims,
  sourcePortClaims,
} from "../../src/features/egress/testing/claims.ts";

driverClaims(fouDriver);
familyClaims(fouDriver);
bulkClaims(fouDriver, 100);
originClaims(fouDriver);
portClaims(fouDriver);
sourcePortClaims(fouDriver);
