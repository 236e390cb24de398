import { fouDriver } from "#features/egress";
import { driverClaims, originClaims } from "../../src/features/egress/testing/claims.ts";

driverClaims(fouDriver);
originClaims(fouDriver);
