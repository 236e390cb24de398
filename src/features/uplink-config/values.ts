import * as v from "valibot";
import { Cidr, IpAddress } from "#base/ip";
import { parseInstant } from "#base/uplink-model";

/** Schema of a whole number in a range. `unit` is the noun in the fault's message. */
export function whole(min: number, max: number, unit = "a whole number") {
  const text = `must be ${unit} from ${min} to ${max}`;
  return v.pipe(v.number(text), v.integer(text), v.minValue(min, text), v.maxValue(max, text));
}

/** Schema of a duration: milliseconds, at least 1, at most a day. */
export const milliseconds = whole(1, 86_400_000, "milliseconds");
export const port = whole(1, 65_535, "a port");
export const cost = whole(0, 255, "a cost");
export const flag = v.boolean("must be true or false");

/** A name of up to 64 characters that is safe in log lines, metrics and URL paths. */
export const uplinkName = v.pipe(
  v.string("must be a text"),
  v.regex(/^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$/, "must be 1 to 64 letters, digits, '-', '_' or '.'"),
);

/** Schema of the name of an interface, with the checks of dev_valid_name in net/core/dev.c. */
export const interfaceName = v.pipe(
  v.string("must be the name of an interface"),
  v.regex(
    /^(?!\.{1,2}$)[^/\s:\0"\\]{1,15}$/,
    "must be the name of an interface: 1 to 15 characters, no space, '/' or ':'",
  ),
);

export const ipAddress = v.pipe(
  v.string("must be an IP address in quotes"),
  v.check((text) => IpAddress.tryParse(text) !== undefined, "must be an IP address, such as 192.0.2.1 or 2001:db8::1"),
  v.transform((text) => IpAddress.parse(text)),
);

export const cidr = v.pipe(
  v.string("must be a prefix in quotes"),
  v.check((text) => Cidr.tryParse(text) !== undefined, "must be a prefix, such as 10.42.0.0/16"),
  v.transform((text) => Cidr.parse(text)),
);

/** An address with the prefix length of its network: `192.0.2.10/24`. */
export interface InterfaceAddress {
  readonly address: IpAddress;
  readonly prefixLength: number;
}

export const interfaceAddress = v.pipe(
  v.string("must be an address with a prefix length in quotes"),
  v.check(
    (text) => parseInterfaceAddress(text) !== undefined,
    "must be an address with a prefix length, such as 192.0.2.10/24",
  ),
  v.transform((text) => parseInterfaceAddress(text) as InterfaceAddress),
);

/** Pure: parses an interface address; `undefined` if the text is not one. */
export function parseInterfaceAddress(text: string): InterfaceAddress | undefined {
  const [before = "", after = "", more] = text.split("/");
  const address = IpAddress.tryParse(before);
  if (address === undefined || more !== undefined || !/^\d{1,3}$/.test(after)) return undefined;
  const prefixLength = Number(after);
  return prefixLength <= address.bits ? { address, prefixLength } : undefined;
}

/** A point in time: milliseconds since the epoch, RFC 3339 text, or null for never. */
export const instant = v.nullable(
  v.union(
    [
      v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(8.64e15)),
      v.pipe(
        v.string(),
        v.check((text) => parseInstant(text) !== undefined),
        v.transform((text) => parseInstant(text) as number),
      ),
    ],
    "must be null, milliseconds since 1970, or a time such as 2026-06-01T10:00:00Z",
  ),
);
