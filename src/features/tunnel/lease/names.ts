import { ConfigError } from "#base/config";
import type { Lease } from "#kube/client";

/** The time for which a Lease is valid after a renewal, and the interval of renewals, milliseconds (docs/spec/tunnel.md#5.4). */
export const LEASE_DURATION_MS = 30_000;
export const LEASE_RENEW_MS = 15_000;

const LABEL_KEY = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const LABEL_VALUE = /^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$/;
/** An RFC 1123 subdomain, as names of Leases must be. */
const OBJECT_NAME = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const MAX_NAME_LENGTH = 253;

/** The name of a server's Lease. Throws `ConfigError` for an id that cannot be part of a Lease's name. */
export function leaseName(serverID: string): string {
  const name = `konnectivity-proxy-server-${serverID}`;
  if (name.length <= MAX_NAME_LENGTH && OBJECT_NAME.test(name)) return name;
  throw new ConfigError("invalid-value", [
    `"${serverID}" cannot be part of the name of a Lease: use lower-case letters, digits, "-" and "."`,
  ]);
}

/** Reads `key=value[,key=value]`. Throws `ConfigError`. */
export function parseLabels(text: string): Readonly<Record<string, string>> {
  const pairs = text.split(",").map((pair): [string, string] => {
    const [key = "", value, ...more] = pair.trim().split("=");
    if (value !== undefined && more.length === 0 && LABEL_KEY.test(key) && LABEL_VALUE.test(value)) return [key, value];
    throw new ConfigError("invalid-value", [`"${pair}" is not a label; an example is k8s-app=konnectivity-server`]);
  });
  return Object.fromEntries(pairs);
}

/** A selector for objects with all of the labels. */
export function selectorOf(labels: Readonly<Record<string, string>>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}

/** The end of a Lease's validity, milliseconds since the epoch; `undefined` if its fields are missing. */
export function validUntil(lease: { readonly spec?: Lease["spec"] }): number | undefined {
  const { renewTime, acquireTime, leaseDurationSeconds } = lease.spec ?? {};
  const since = Date.parse(renewTime ?? acquireTime ?? "");
  if (Number.isNaN(since) || leaseDurationSeconds === undefined) return undefined;
  return since + leaseDurationSeconds * 1000;
}
