/**
 * The record of the host's settings before `coild` changed them, which `isthmus uninstall` reads.
 *
 * Owns: the file beside the socket. Does not know: who sets which value.
 *
 * ```ts
 * recordFormerSettings(formerSettingsPath("/run/coild.sock"), stack.sysctl);
 * ```
 */
export { FORWARDING_KEYS, formerSettingsPath, readFormerSettings, recordFormerSettings } from "./former-settings.ts";
