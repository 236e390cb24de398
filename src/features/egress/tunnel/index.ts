export { chooseDriver, TUNNEL_DRIVERS, TunnelError } from "./choose.ts";
export type { GatewayPeer, TunnelDriver } from "./driver.ts";
export { fouDriver } from "./fou.ts";
export { vniOf, vxlanDriver } from "./vxlan.ts";
