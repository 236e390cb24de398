import { fouDriver } from "#features/egress";
import { driverClaims, originClaims, portClaims, sourcePortClaims } from "../../src/features/egress/testing/claims.ts";

driverClaims(fouDriver);
originClaims(fouDriver);
portClaims(fouDriver);
sourcePortClaims(fouDriver);
