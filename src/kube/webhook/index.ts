/**
 * Admission webhooks: an HTTPS server that API servers call before they store an object.
 *
 * Owns: AdmissionReview v1 and v1beta1, JSON patches, denials with causes, certificates that are read at handshake and reloaded as they
 * change, callers that prove themselves, a health check by a real handshake. Does not know: rules about objects, where certificates come from.
 *
 * ```ts
 * await using webhooks = await WebhookServer.listen({
 *   port: 9443,
 *   certDir: "/certs",
 *   handlers: {
 *     "/validate-coil-cybozu-com-v2-addresspool": (request) => {
 *       const faults = validate(request.object);
 *       return faults.length === 0 ? { allowed: true } : denyInvalid(request, faults);
 *     },
 *   },
 *   log,
 * });
 * ```
 */
export {
  type AdmissionAnswer,
  type AdmissionCause,
  type AdmissionRequest,
  type AdmissionVersion,
  denyInvalid,
  formatAdmissionReview,
  type ParsedReview,
  parseAdmissionReview,
  WebhookError,
  type WebhookErrorCode,
} from "./admission.ts";
export type { Callers } from "./callers.ts";
export type { CertificateEvent, KeyPair } from "./certificates.ts";
export { admissionHandlers } from "./handlers.ts";
export { CertificateRotation } from "./rotation.ts";
export { type AdmissionHandler, WebhookServer } from "./server.ts";
