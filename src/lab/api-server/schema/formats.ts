import { isIP } from "node:net";

/**
 * Formats of strings for CRDs (apiextensions-apiserver pkg/apiserver/validation: formats), by name without hyphens. Those of books, cards, colours and
 * people are not enforced.
 */
const CUSTOM: Readonly<Record<string, (value: string) => boolean>> = {
  bsonobjectid: (value) => /^[0-9a-f]{24}$/i.test(value),
  byte: (value) => /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/.test(value),
  cidr: isCidr,
  date: isDate,
  datetime: isDateTime,
  duration: isDuration,
  email: (value) => /^([^<>]*<)?[^@\s<>]+@[^@\s<>]+>?$/.test(value),
  hostname: isHostname,
  ipv4: (value) => value.includes(".") && isGoIp(value),
  ipv6: (value) => value.includes(":") && isIP(value) === 6 && !value.includes("%"),
  k8slongname: (value) =>
    value.length <= 253 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/.test(value),
  k8sshortname: (value) => value.length <= 63 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(value),
  mac: isMac,
  uri: (value) => /^([a-z][a-z0-9+.-]*:(\/\/[^\s/?#]*([/?#].*)?|\/(?!\/).*)|\/.*)$/i.test(value),
  uuid: (value) => isUuid(value, "[0-9a-f]", "[0-9a-f]"),
  uuid3: (value) => isUuid(value, "3", "[0-9a-f]"),
  uuid4: (value) => isUuid(value, "4", "[89ab]"),
  uuid5: (value) => isUuid(value, "5", "[89ab]"),
};

/**
 * Returns true if a string has an OpenAPI format. True for formats that are not enforced; quantities are enforced in built-in kinds, not in custom
 * ones.
 */
export function hasFormat(format: string, value: string, custom: boolean): boolean {
  if (format === "quantity" && !custom) {
    return /^[+-]?(\d+(\.\d*)?|\.\d+)(([KMGTPE]i)|[numkMGTPE]|[eE][+-]?\d+)?$/.test(value);
  }
  const name = format.replaceAll("-", "");
  return !Object.hasOwn(CUSTOM, name) || CUSTOM[name]?.(value) === true;
}

/** Addresses as Go parsed them before 1.17, which API servers still do: IPv4 may have leading zeros, IPv6 may not have zones. */
function isGoIp(value: string): boolean {
  return isIP(value.replace(/(^|[.:])0+(?=\d+(\.|$))/g, "$1")) !== 0 && !value.includes("%");
}

function isCidr(value: string): boolean {
  const slash = value.indexOf("/");
  const address = value.slice(0, slash);
  const bits = value.slice(slash + 1);
  return slash > 0 && isGoIp(address) && /^\d+$/.test(bits) && Number(bits) <= (address.includes(":") ? 128 : 32);
}

function isMac(value: string): boolean {
  const groups = /^[0-9a-f]{4}(\.[0-9a-f]{4})+$/i.test(value)
    ? value.split(".").length * 2
    : value.split(/[:-]/).length;
  const isPaired = /^[0-9a-f]{2}(([:-])[0-9a-f]{2})(\2[0-9a-f]{2})*$/i.test(value);
  return [6, 8, 20].includes(groups) && (isPaired || value.includes("."));
}

function isDate(value: string): boolean {
  const ms = /^\d{4}-\d\d-\d\d$/.test(value) ? Date.parse(`${value}T00:00:00Z`) : Number.NaN;
  return !Number.isNaN(ms) && new Date(ms).toISOString().startsWith(value);
}

function isDateTime(value: string): boolean {
  const match = /^(\d{4}-\d\d-\d\d)[Tt]([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$/.exec(value);
  return match !== null && isDate(match[1] ?? "");
}

const UNITS = "ns|nanos?|us|µs|micros?|ms|millis?|s|secs?|m|mins?|h|hrs?|hours?|d|days?|w|wks?|weeks?";

function isDuration(value: string): boolean {
  const isGo =
    /^[-+]?(0|(\d+(\.\d*)?|\.\d+)(ns|us|\u00b5s|ms|s|m|h))((\d+(\.\d*)?|\.\d+)(ns|us|\u00b5s|ms|s|m|h))*$/.test(value);
  return isGo || new RegExp(`\\d+\\s*(${UNITS})(?![A-Za-zµ])`).test(value);
}

/** A name of one label, or of several labels, the last of which has only letters. */
function isHostname(value: string): boolean {
  const labels = value.split(".");
  const isLabel = (label: string): boolean =>
    /^[a-z0-9\p{S}\p{L}]([-a-z0-9\p{S}\p{L}]{0,61}[a-z0-9\p{S}\p{L}])?$/iu.test(label);
  return (
    value.length <= 255 &&
    labels.every(isLabel) &&
    (labels.length === 1 || /^[a-z\p{L}]{2,63}$/iu.test(labels.at(-1) ?? ""))
  );
}

function isUuid(value: string, version: string, variant: string): boolean {
  return new RegExp(`^[0-9a-f]{8}-?[0-9a-f]{4}-?${version}[0-9a-f]{3}-?${variant}[0-9a-f]{3}-?[0-9a-f]{12}$`, "i").test(
    value,
  );
}
