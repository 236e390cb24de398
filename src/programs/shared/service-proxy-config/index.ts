/**
 * The flags and the configuration file of `service-proxy`, which `explain` takes too.
 *
 * Owns: {@link serviceProxyFlags}, {@link serviceProxyConfig}, KubeProxyConfiguration. Does not know: what programs do with settings.
 */
export { type ConfigSource, type ServiceProxyConfig, serviceProxyConfig, serviceProxyConfigOf } from "./config.ts";
export { digestOf } from "./config-file.ts";
export { writeConfigTo } from "./config-write.ts";
export { configzOf } from "./configz.ts";
export { type ServiceProxyValues, serviceProxyFlags } from "./flags.ts";
