import { alcorDevice } from "./alcor/device.ts";
import type { NicDevice } from "./device.ts";
import { ovsDevice } from "./ovs/device.ts";

/** The kinds of devices that this suite plugs. A new one is a folder beside these, and a line here. */
export const DEVICES: readonly NicDevice[] = [ovsDevice, alcorDevice];
