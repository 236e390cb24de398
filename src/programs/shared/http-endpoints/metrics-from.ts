import { commaFlag } from "#base/config";
import { Cidr } from "#base/ip";

/** `--metrics-from`, of each program that serves metrics. An entry that is no CIDR is a fault: one that is left out would open the port. */
export const metricsFromFlag = {
  metricsFrom: commaFlag(
    "metrics-from",
    (text) => Cidr.parse(text),
    "who may read metrics and profiles, besides this machine itself; without the flag: everybody",
    "CIDR,...",
  ),
};
