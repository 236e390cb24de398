export { chooseDriver, TUNNEL_DRIVERS, TunnelError } from "./choose.ts";
export type { FixedPart, GatewayPeer, TunnelDriver, WrappedForm } from "./driver.ts";
export { fitsIpv6, ipv6OffKey, isIpv6Off, usableAddresses } from "./families.ts";
export { fouDriver } from "./fou.ts";
export { loadDriverModules } from "./modules.ts";
export { vniOf, vxlanDriver } from "./vxlan.ts";
