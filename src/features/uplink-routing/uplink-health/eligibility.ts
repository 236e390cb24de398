import { hasError, type Settings, type Uplink } from "#base/uplink-model";

/** `periodic`: at every interval. `metered`: one target at a time and seldom, because traffic costs money. `never`: it sends no probe. */
export type ProbeMode = "periodic" | "metered" | "never";

/**
 * Pure: how an uplink may be probed (docs/spec/uplink-proxy.md#3.3). `uplinks` with their effective status: a metered uplink is probed only
 * if every cheaper uplink that could carry traffic has failed.
 */
export function probeMode(uplink: Uplink, uplinks: readonly Uplink[], settings: Settings): ProbeMode {
  const isExternal = settings.uplinks.some(({ name, mode }) => name === uplink.name && mode === "external");
  if (isExternal || !canCarry(uplink, settings.maxCost) || !canBind(uplink)) return "never";
  if (uplink.cost <= settings.probe.maxCost) return "periodic";
  const cheaper = uplinks.filter((other) => other.cost < uplink.cost && canCarry(other, settings.maxCost));
  return cheaper.every(({ status }) => hasError(status)) ? "metered" : "never";
}

function canCarry({ isManagement, isL3, isValid, cost }: Uplink, maxCost: number): boolean {
  return isManagement && isL3 && isValid && cost <= maxCost;
}

function canBind({ isUp, addresses }: Uplink): boolean {
  return isUp && addresses.some(({ isUsable }) => isUsable);
}
