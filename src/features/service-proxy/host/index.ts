/**
 * The host before a proxy runs on it: families, kernel version and features, kernel parameters, objects that other proxies left.
 *
 * Owns: the checks of a start. Does not know: Services, tables of ours.
 */
export { supportedFamilies } from "./families.ts";
export { type ConntrackSettings, setOomScore } from "./kernel-parameters.ts";
export { hasLegacyNat, leftovers } from "./leftovers.ts";
export { prepareKernel } from "./prepare-kernel.ts";
export { serviceRanges } from "./service-ranges.ts";
export { checkKernelVersion, kernelRelease, SKIP_VERSION_CHECK, tryConstructs } from "./start-checks.ts";
