/**
 * Settings of the uplinks and of their proxy: from the declarative file, or from the documents that EVE's agents publish
 * (docs/spec/uplink-proxy.md#2).
 *
 * Owns: the syntax and the checks of settings, and watching the files. Does not know: the kernel, and the purpose of the settings.
 *
 * ```ts
 * const config = new SettingsFile({ clock, log }, { path: "/etc/uplink-proxy.yaml" });
 * using following = config.onChange(() => dirty.mark("settings"));
 * ```
 */
export { UplinkConfigError } from "./errors.ts";
export { EveInputs } from "./eve-inputs.ts";
export { parseSettings } from "./parse.ts";
export { SettingsFile } from "./settings-file.ts";
