import { Cidr, IpAddress } from "#base/ip";

/** The form in which addresses and prefixes are sent between threads. A structured clone would lose their class. */
type Tagged = { readonly $ip: string } | { readonly $cidr: string };

/** A value of the model as plain data: plain objects, arrays, addresses and prefixes. */
export function encode(value: unknown): unknown {
  if (value instanceof IpAddress) return { $ip: value.toString() } satisfies Tagged;
  if (value instanceof Cidr) return { $cidr: value.toString() } satisfies Tagged;
  if (Array.isArray(value)) return value.map(encode);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, encode(each)]));
}

/** The value that was passed to {@link encode}; the caller names its type. Throws `IpParseError` for damaged data. */
export function decode<T>(value: unknown): T {
  return revive(value) as T;
}

function revive(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(revive);
  if (typeof value !== "object" || value === null) return value;
  if ("$ip" in value) return IpAddress.parse(String(value.$ip));
  if ("$cidr" in value) return Cidr.parse(String(value.$cidr));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, revive(each)]));
}
