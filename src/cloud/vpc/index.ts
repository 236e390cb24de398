/**
 * VPCs of a cloud through one interface, {@link VpcProvider}, whatever cloud it is.
 *
 * Owns: what ports, subnets and failures are called; the mapping of a NIC's wishes to a port of Neutron; batches. Does not know: pods, claims,
 * when a port is made, bound or deleted.
 *
 * ```ts
 * await using provider: VpcProvider = new NeutronProvider({ neutron, clock }, { name: "neutron" });
 * const vpc = await provider.resolve({ vpc: "vpc-1", projectId }, { signal });
 * const [result] = await provider.createPorts([{ identity, vpc, wish, host: undefined }], { signal });
 * ```
 */
export { AlcorProvider } from "./alcor/alcor-provider.ts";
export { PROVIDER_REASONS, ProviderError, type ProviderReason, type Retry } from "./errors.ts";
export { NeutronProvider } from "./neutron/neutron-provider.ts";
export {
  type CreateOptions,
  type GetOptions,
  isForeignVif,
  isPluggable,
  isPlumbable,
  PLUGGABLE,
  type PortIdentity,
  type PortQuota,
  type PortRequest,
  type PortResult,
  type PortWish,
  type ProviderAgent,
  type ResolveOptions,
  type SavedDevice,
  type SecurityGroupsChange,
  type Vpc,
  type VpcPort,
  type VpcProvider,
  type VpcRef,
  type VpcSubnet,
} from "./provider.ts";
