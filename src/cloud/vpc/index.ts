/**
 * VPCs of a cloud through one interface, {@link VpcProvider}, whatever cloud it is.
 *
 * Owns: the names of ports, subnets and failures; the kinds of clouds ({@link CLOUDS}), a folder each; batches. Does not know: pods, claims,
 * when a port is made, bound or deleted. The promises of the interface are tests in `cloud/vpc-contract`.
 *
 * ```ts
 * await using provider: VpcProvider = CLOUDS[0].open({ clock, log }, { name: "neutron", config: {}, access });
 * const vpc = await provider.resolve({ vpc: "vpc-1", projectId }, { signal });
 * const [result] = await provider.createPorts([{ identity, vpc, wish, host: undefined }], { signal });
 * ```
 */
export { type Cloud, CloudConfigError } from "./cloud.ts";
export { CLOUDS } from "./clouds.ts";
export { PROVIDER_REASONS, ProviderError, type ProviderReason, type Retry } from "./errors.ts";
export { NeutronProvider } from "./neutron/neutron-provider.ts";
export type {
  CreateOptions,
  GetOptions,
  PortIdentity,
  PortQuota,
  PortRequest,
  PortResult,
  PortWish,
  ProviderAgent,
  ResolveOptions,
  SavedDevice,
  SecurityGroupsChange,
  Vpc,
  VpcPort,
  VpcProvider,
  VpcRef,
  VpcSubnet,
} from "./provider.ts";
export { isForeignVif, isPluggable, isPlumbable, isReadyWhenPlugged, PLUGGABLE } from "./vif.ts";
