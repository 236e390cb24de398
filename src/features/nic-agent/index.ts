/**
 * The agent of a node for NICs of VPCs: it knows the claims of the node's pods, serves the calls of the executables vpc-neutron and vpc-alcor, and
 * reports what is plugged (docs/spec/vpc-nics.md#7).
 *
 * Owns: the claims on disk, the two gates of ADD, codes and order of calls, the conditions `Plugged` and `Unplugged`. Does not know: devices,
 * switches, sockets; the program passes them in.
 *
 * ```ts
 * const claims = new ClaimBook({ files: new ClaimFiles("/var/lib/isthmus/claims"), log, clock });
 * const service = new NicService({ claims, network, ... });
 * await serveGrpc({ handlers: service.handlers, ... });
 * ```
 */
export { ClaimBook } from "./claim-book.ts";
export { ClaimFiles } from "./claim-files.ts";
export { NicCallError, type NicCallErrorCode } from "./failure.ts";
export { LostDevices } from "./lost-devices.ts";
export {
  operatorSettings,
  parseAllowed,
} from "./operator-settings.ts";
export { applyReport, plannedReport } from "./report.ts";
export { nicHandlers } from "./request.ts";
export { NicService } from "./service.ts";
