import { IpParseError, MacAddress } from "#base/ip";
import { duplicate, type FieldFault, invalid, unknownField } from "#kube/crd";
import type { Nic } from "#kube/nic";

/** NICs as they were written, in normal form: canonical names in one order, ids and MAC addresses in lower case. */
export interface ReadNics {
  readonly nics: readonly Nic[];
  readonly faults: readonly FieldFault[];
  /** The key that was written for a field, by the field's path such as `nics[0].ip`, where it is not the canonical one. */
  readonly written: ReadonlyMap<string, string>;
}

type Kind = "text" | "texts" | "switch";

/** The fields in their canonical order, and their other names in lower case (docs/spec/vpc-nics.md#1). */
const FIELDS: Readonly<Record<keyof Nic, { readonly kind: Kind; readonly aliases?: readonly string[] }>> = {
  name: { kind: "text" },
  subnet: { kind: "text", aliases: ["subnetname"] },
  ip: { kind: "text", aliases: ["ipaddress"] },
  portID: { kind: "text" },
  securityGroup: { kind: "text" },
  securityGroups: { kind: "texts" },
  mac: { kind: "text", aliases: ["macaddress"] },
  tag: { kind: "text" },
  ipv6Enabled: { kind: "switch" },
  defaultRoute: { kind: "switch" },
};
const NAMES = Object.keys(FIELDS) as readonly (keyof Nic)[];
/** Every accepted key in lower case. */
const BY_KEY: ReadonlyMap<string, keyof Nic> = new Map(
  NAMES.flatMap((name) => [name.toLowerCase(), ...(FIELDS[name].aliases ?? [])].map((key) => [key, name] as const)),
);

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** The number of faults after which no more NICs are read: a text of 16 KiB has place for thousands. */
const MAX_FAULTS = 100;

/** Returns true if a text is a UUID, in lower or upper case. */
export function isUuid(text: string): boolean {
  return UUID.test(text);
}

/** Reads a list of NICs with any of the accepted names. Null is absent, as for API servers. Pure; any value may be given. */
export function readNics(value: unknown): ReadNics {
  const faults: FieldFault[] = [];
  const written = new Map<string, string>();
  if (value === undefined || value === null) return { nics: [], faults, written };
  if (!Array.isArray(value)) {
    return { nics: [], faults: [invalid("nics", briefly(value), "must be a list of NICs")], written };
  }
  const nics: Nic[] = [];
  for (const [at, item] of value.entries()) {
    if (faults.length >= MAX_FAULTS) break;
    nics.push(readNic(item, `nics[${at}]`, { faults, written }));
  }
  return { nics, faults, written };
}

function readNic(
  item: unknown,
  path: string,
  { faults, written }: { readonly faults: FieldFault[]; readonly written: Map<string, string> },
): Nic {
  if (!isRecord(item)) {
    faults.push(invalid(path, briefly(item), "must be an object"));
    return {};
  }
  const found = new Map<keyof Nic, unknown>();
  for (const [key, value] of Object.entries(item)) {
    const name = BY_KEY.get(key.toLowerCase());
    if (name === undefined) {
      faults.push(unknownField(`${path}.${key.slice(0, 100)}`));
      continue;
    }
    if (value === null) continue;
    const field = `${path}.${name}`;
    if (found.has(name)) {
      faults.push(duplicate(field, key));
      continue;
    }
    if (key !== name) written.set(field, key);
    const fault = kindFault(FIELDS[name].kind, value);
    if (fault === undefined) found.set(name, value);
    else faults.push(invalid(field, briefly(value), fault));
  }
  // An empty list says nothing: the policy's groups are meant, not none.
  if ((found.get("securityGroups") as readonly string[] | undefined)?.length === 0) found.delete("securityGroups");
  return normalised(Object.fromEntries(NAMES.filter((name) => found.has(name)).map((name) => [name, found.get(name)])));
}

/** The reason why a value is not of a kind. */
function kindFault(kind: Kind, value: unknown): string | undefined {
  switch (kind) {
    case "text":
      return typeof value === "string" ? undefined : "must be a text";
    case "switch":
      return typeof value === "boolean" ? undefined : "must be true or false";
    case "texts": {
      const areTexts = Array.isArray(value) && value.every((one) => typeof one === "string");
      return areTexts ? undefined : "must be a list of texts";
    }
  }
}

function normalised(nic: Nic): Nic {
  if (nic.portID !== undefined && isUuid(nic.portID)) nic.portID = nic.portID.toLowerCase();
  const mac = nic.mac === undefined ? undefined : parseMac(nic.mac);
  if (mac !== undefined) nic.mac = mac.toString();
  return nic;
}

/** The address of a text, or `undefined`. */
export function parseMac(text: string): MacAddress | undefined {
  try {
    return MacAddress.parse(text);
  } catch (error) {
    if (error instanceof IpParseError) return undefined;
    throw error;
  }
}

/** A value for a message: texts up to 300 characters, else the name of its type, because it can have any size. */
export function briefly(value: unknown): unknown {
  if (typeof value === "string") return value.slice(0, 300);
  if (Array.isArray(value)) return "a list";
  return typeof value === "object" && value !== null ? "an object" : value;
}

/** Returns true if a value is an object, and no list. */
export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
