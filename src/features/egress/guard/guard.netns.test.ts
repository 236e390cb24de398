import { clientGuardClaims, guardClaims } from "../testing/guard-claims.ts";
import { vxlanDriver } from "../tunnel/index.ts";

guardClaims(vxlanDriver);
clientGuardClaims();
