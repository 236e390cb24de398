import { Attributes, familyNumber, MessageWriter, malformed } from "#kernel/netlink";
import type { Address, AddressScope, AddressSpec } from "./types.ts";

/** Numbers of include/uapi/linux/if_addr.h. */
const IFA = { ADDRESS: 1, LOCAL: 2, LABEL: 3, BROADCAST: 4, FLAGS: 8, PROTO: 11 } as const;
const FLAG = {
  SECONDARY: 0x1,
  NODAD: 0x2,
  DADFAILED: 0x8,
  DEPRECATED: 0x20,
  TENTATIVE: 0x40,
  PERMANENT: 0x80,
  NOPREFIXROUTE: 0x200,
} as const;
/** RT_SCOPE_* of include/uapi/linux/rtnetlink.h. */
const SCOPES: ReadonlyMap<number, AddressScope> = new Map([
  [0, "global"],
  [200, "site"],
  [253, "link"],
  [254, "host"],
  [255, "nowhere"],
]);

/** RT_SCOPE_* of a scope. */
export function scopeNumber(scope: AddressScope): number {
  if (typeof scope === "number") return scope;
  for (const [number, name] of SCOPES) if (name === scope) return number;
  throw new Error(`no number for scope ${scope}`);
}

/** The scope that the kernel's tools give to an address without a scope of its own. */
export function defaultScope(spec: AddressSpec): AddressScope {
  return spec.scope ?? (spec.address.family === 4 && spec.address.isLoopback ? "host" : "global");
}

/** `struct ifaddrmsg` and attributes, for RTM_NEWADDR and RTM_DELADDR. */
export function encodeAddress(spec: AddressSpec): Uint8Array {
  const { address } = spec;
  const header = Buffer.alloc(8);
  header.writeUInt8(familyNumber(address.family), 0);
  header.writeUInt8(spec.prefixLength ?? address.bits, 1);
  header.writeUInt8(scopeNumber(defaultScope(spec)), 3);
  header.writeUInt32LE(spec.linkIndex, 4);
  const flags = (spec.noDad === true ? FLAG.NODAD : 0) | (spec.noPrefixRoute === true ? FLAG.NOPREFIXROUTE : 0);
  const writer = new MessageWriter()
    .raw(header)
    .address(IFA.LOCAL, address)
    .address(IFA.ADDRESS, spec.peer ?? address);
  if (flags !== 0) writer.u32(IFA.FLAGS, flags);
  if (spec.protocol !== undefined) writer.u8(IFA.PROTO, spec.protocol);
  return writer.bytes;
}

/** The body of a dump; the kernel applies it if strict checks are on. */
export function encodeAddressDump(family: 4 | 6 | undefined, linkIndex: number | undefined): Uint8Array {
  const header = Buffer.alloc(8);
  header.writeUInt8(family === undefined ? 0 : familyNumber(family), 0);
  header.writeUInt32LE(linkIndex ?? 0, 4);
  return header;
}

/** Decodes RTM_NEWADDR or RTM_DELADDR; `undefined` for a family that is not IP. Throws {@link KernelError} `invalid`. */
export function decodeAddress(payload: Buffer): Address | undefined {
  if (payload.length < 8) throw malformed(`an address message has only ${payload.length} bytes`);
  const family = payload.readUInt8(0);
  if (family !== familyNumber(4) && family !== familyNumber(6)) return undefined;
  const attributes = Attributes.parse(payload.subarray(8));
  const far = attributes.address(IFA.ADDRESS);
  const address = attributes.address(IFA.LOCAL) ?? far;
  if (address === undefined) throw malformed("an address message has no address");
  const flags = attributes.u32(IFA.FLAGS) ?? payload.readUInt8(2);
  const scope = payload.readUInt8(3);
  const label = attributes.string(IFA.LABEL);
  const protocol = attributes.u8(IFA.PROTO) ?? 0;
  return {
    linkIndex: payload.readUInt32LE(4),
    address,
    prefixLength: payload.readUInt8(1),
    scope: SCOPES.get(scope) ?? scope,
    ...(far === undefined || far.equals(address) ? {} : { peer: far }),
    ...(label?.includes(":") === true ? { label } : {}),
    noDad: (flags & FLAG.NODAD) !== 0,
    tentative: (flags & FLAG.TENTATIVE) !== 0,
    dadFailed: (flags & FLAG.DADFAILED) !== 0,
    ...((flags & FLAG.DEPRECATED) === 0 ? {} : { deprecated: true }),
    permanent: (flags & FLAG.PERMANENT) !== 0,
    secondary: family === familyNumber(4) && (flags & FLAG.SECONDARY) !== 0,
    ...(protocol === 0 ? {} : { protocol }),
  };
}
