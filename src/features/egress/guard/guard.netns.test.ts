import { clientGuardClaims, guardClaims, portShareClaims, probeClaims } from "../testing/guard-claims.ts";
import { vxlanDriver } from "../tunnel/index.ts";

guardClaims(vxlanDriver);
probeClaims(vxlanDriver);
portShareClaims(vxlanDriver);
clientGuardClaims();
