/**
 * The data that the features of the uplinks share: an uplink, the snapshot from which an uplink is chosen, the settings, and the
 * evidence of real traffic.
 *
 * Owns: types, defaults and small interfaces, without I/O. Does not know: where values come from.
 */
export type { ConfigSource, ConfigState } from "./config-source.ts";
export {
  DEFAULT_SETTINGS,
  DIAL_TIMEOUT_MS,
  HOST_ADDRESS,
  HOST_ADDRESS_6,
  POD_ADDRESS,
  POD_BRIDGE,
  POD_PORTS,
  PROXY_PORT,
} from "./defaults.ts";
export { parseInstant } from "./instant.ts";
export type { ClientKind, DialFailure, Evidence, FailureContext, SnapshotSource } from "./ports.ts";
export type {
  DnsSettings,
  HttpProbeTarget,
  ListenerSettings,
  ProbeSettings,
  ProbeTarget,
  RoutingSettings,
  SelectionSettings,
  Settings,
  TransparentSettings,
  TunnelSettings,
  UplinkSettings,
} from "./settings.ts";
export { hasError, type Snapshot, UNTESTED, type Uplink, type UplinkAddress, type UplinkStatus } from "./uplink.ts";
