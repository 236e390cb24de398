/**
 * Puts the CNI executable and its network configuration in place on a node (docs/spec/pod-network.md#13).
 *
 * While a program of the node runs, {@link CniKeeper} puts back what others remove.
 *
 * Owns: files in the folders of CNI executables and configurations. Does not know: where the settings come from.
 *
 * ```ts
 * const { binaryChanged, configChanged, disabled } = await installCni(installation, conflist);
 * ```
 */
export { type CniInstallation, conflistFault, installCni } from "./installer.ts";
export { CniKeeper } from "./keeper.ts";
