import { fouDriver } from "#features/egress";
import { driverClaims } from "../../src/features/egress/testing/claims.ts";

driverClaims(fouDriver);
