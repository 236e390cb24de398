import { clientGuardClaims, guardClaims, probeClaims } from "../testing/guard-claims.ts";
import { vxlanDriver } from "../tunnel/index.ts";

guardClaims(vxlanDriver);
probeClaims(vxlanDriver);
clientGuardClaims();
