/**
 * Settings of the uplinks and of their proxy: from the declarative file, or from the documents that EVE's agents publish
 * (docs/spec/uplink-proxy.md#2).
 *
 * Owns: their syntax and checks, and following the files. Refuses to know: the kernel, and what settings are for.
 *
 * ```ts
 * const config = new SettingsFile({ clock, log }, { path: "/etc/uplink-proxy.yaml" });
 * using following = config.onChange(() => dirty.mark());
 * ```
 */
export { UplinkConfigError } from "./errors.ts";
export { EveInputs } from "./eve-inputs.ts";
export { parseSettings } from "./parse.ts";
export { SettingsFile } from "./settings-file.ts";
