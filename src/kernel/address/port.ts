import { KernelError } from "#kernel/errors";
import { type NetlinkConnection, NLM_F, RTM } from "#kernel/netlink";
import { decodeAddress, encodeAddress, encodeAddressDump } from "./codec.ts";
import type { Address, AddressFilter, AddressKey, AddressPort, AddressSpec } from "./types.ts";

/** The lowest protocol for programs; lower numbers are used by the kernel (IFAPROT_* of include/uapi/linux/if_addr.h). */
const MIN_PROTOCOL = 4;

/** The addresses of the namespace that `connection` is in. The caller still owns the connection. */
export function openAddressPort(connection: NetlinkConnection): AddressPort {
  const write = (verb: string, type: number, flags: number, spec: AddressSpec): void => {
    checkAddress(verb, spec);
    connection.change({ type, flags, body: encodeAddress(spec), what: () => describeAddress(verb, spec) });
  };
  return {
    list: (filter = {}) => listAddresses(connection, filter),
    add: (spec) => write("add", RTM.NEWADDR, NLM_F.CREATE | NLM_F.EXCL, spec),
    replace: (spec) => write("replace", RTM.NEWADDR, NLM_F.CREATE | NLM_F.REPLACE, spec),
    delete: (key: AddressKey) => write("delete", RTM.DELADDR, 0, key),
  };
}

function listAddresses(connection: NetlinkConnection, filter: AddressFilter): Address[] {
  const { family, linkIndex } = filter;
  const body = encodeAddressDump(family, linkIndex);
  // The kernel refuses to filter by a link that does not exist; this list is empty then.
  const what = (): string => `list addresses${linkIndex === undefined ? "" : ` of link ${linkIndex}`}`;
  const request = { type: RTM.GETADDR, body: connection.strict ? body : encodeAddressDump(family, undefined), what };
  try {
    return connection.dump(request, ({ type, payload }) => {
      const address = type === RTM.NEWADDR ? decodeAddress(payload) : undefined;
      if (linkIndex !== undefined && address?.linkIndex !== linkIndex) return undefined;
      return family === undefined || address?.address.family === family ? address : undefined;
    });
  } catch (error) {
    if (linkIndex !== undefined && error instanceof KernelError && error.code === "no-device") return [];
    throw error;
  }
}

/** Throws {@link KernelError} `invalid` for an address that cannot be encoded. */
export function checkAddress(verb: string, spec: AddressSpec): void {
  const why = faultOf(spec);
  if (why === undefined) return;
  throw new KernelError("invalid", `Cannot ${describeAddress(verb, spec)}: ${why}`, { errno: "EINVAL" });
}

function faultOf({
  address,
  prefixLength = address.bits,
  peer,
  protocol = MIN_PROTOCOL,
}: AddressSpec): string | undefined {
  if (!isWhole(prefixLength, 0, address.bits)) return `/${prefixLength} is not a prefix length of its family`;
  if (peer !== undefined && peer.family !== address.family) return "its peer has another address family";
  if (isWhole(protocol, MIN_PROTOCOL, 255)) return undefined;
  return `${protocol} is not a protocol number of an address: use ${MIN_PROTOCOL} to 255`;
}

function isWhole(number: number, from: number, to: number): boolean {
  return Number.isInteger(number) && number >= from && number <= to;
}

/** `add address 10.0.0.1/32 to link 3`. */
export function describeAddress(verb: string, spec: AddressSpec): string {
  return `${verb} address ${spec.address}/${spec.prefixLength ?? spec.address.bits} on link ${spec.linkIndex}`;
}
