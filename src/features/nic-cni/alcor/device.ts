import type { NetStack } from "#kernel/net";
import type { NicStatus } from "#kube/nic";
import { type DeviceContext, type ExplainedNic, type NicDevice, type PrepareBed, refuseTaken } from "../device.ts";
import { alcorDeviceName } from "../names.ts";
import { sandboxDifferences } from "../sandbox.ts";
import { alcorSide, awaitDevice, giveBack, takeDevice } from "./move.ts";
import { type AlcorNic, type AlcorPlace, alcorPlace } from "./place.ts";

/** The default of the wait for a device of Alcor's agent, in milliseconds (docs/spec/vpc-nics.md#9). */
const DEFAULT_PROBE_MS = 3000;

/** Devices that Alcor's agent makes: one is awaited in the VPC's namespace, moved into the sandbox, and moved back (docs/spec/vpc-nics.md#9). */
export const alcorDevice: NicDevice<AlcorPlace> = {
  kind: "alcor",
  type: "vpc-alcor",
  placeSchema: alcorPlace,
  // The device appears when its port is active.
  awaitsActive: false,
  hasSwitch: false,
  plan,
  prepare,
  async plug(nic, { kernel, sandbox, sandboxNs }) {
    takeDevice(kernel, nic, sandbox, sandboxNs);
  },
  async unplug(nic, { kernel, sandbox }) {
    return giveBack(kernel, nic, sandbox) === "lost" ? "lost" : "removed";
  },
  async inspect(nic, { sandbox }) {
    return differences(nic, sandbox);
  },
  inspectSandbox: differences,
  explain,
};

function plan({ portID = "", networkID = "", netns, vethName }: NicStatus, { settings }: DeviceContext): AlcorPlace {
  return {
    kind: "alcor",
    netns: netns ?? `/run/netns/${settings.nsPrefix}${networkID}`,
    device: vethName ?? alcorDeviceName(portID),
    waitMs: settings.probe_tm_ms === 0 ? DEFAULT_PROBE_MS : settings.probe_tm_ms,
    mizarTuning: settings.mizarTuning,
  };
}

/** Waits for the devices, one after the other, and puts into the plans what they have. */
async function prepare(
  nics: readonly AlcorNic[],
  bed: PrepareBed,
  options: { readonly signal: AbortSignal },
): Promise<readonly AlcorNic[]> {
  refuseTaken(bed.sandbox, nics);
  const found: AlcorNic[] = [];
  for (const nic of nics) found.push({ ...nic, place: { ...nic.place, saved: await awaitDevice(bed, nic, options) } });
  return found;
}

function differences(nic: AlcorNic, sandbox: NetStack): readonly string[] {
  const { saved } = nic.place;
  if (saved === undefined) return [`${nic.name} was not moved into the sandbox`];
  return sandboxDifferences(sandbox, alcorSide(nic, saved));
}

/** The device brings its own settings. */
function explain(nic: AlcorNic): ExplainedNic {
  const { saved } = nic.place;
  return {
    shown: saved ?? nic,
    side: saved === undefined ? undefined : alcorSide(nic, saved),
    isConfigured: true,
    devices: [],
  };
}
