import type { Flag } from "#base/config";
import { Cidr } from "#base/ip";

const flag: Flag<readonly Cidr[]> = {
  name: "metrics-from",
  help: "who may read metrics and profiles, besides this machine itself; without the flag: everybody (the flag can be repeated)",
  placeholder: "CIDR,...",
  defaultText: undefined,
  initial: [],
  // An entry that is left out would open the port, so none is.
  parse: (text, before) => [...before, ...text.split(",").map((entry) => Cidr.parse(entry.trim()))],
};

/** `--metrics-from`, of each program that serves metrics. */
export const metricsFromFlag = { metricsFrom: flag };
