import type { IpFamily } from "#base/ip";
import { isKernelError, KernelError } from "#kernel/errors";
import {
  AF,
  Attributes,
  familyNumber,
  GenericFamily,
  MessageWriter,
  malformed,
  NETLINK,
  NetlinkConnection,
} from "#kernel/netlink";
import type { FouPort, FouPortEntry } from "./types.ts";

/** Numbers of include/uapi/linux/fou.h. */
const CMD = { ADD: 1, DEL: 2, GET: 3 } as const;
const ATTR = { PORT: 1, AF: 2, IPPROTO: 3, TYPE: 4 } as const;
const ENCAP = { DIRECT: 1, GUE: 2 } as const;

/** The FOU ports of the namespace `ns`, which must stay open as long as the port is used. */
export function openFouPort(ns: { readonly fd: number }): FouPort {
  return {
    available() {
      try {
        withFou(ns, () => undefined);
        return true;
      } catch (error) {
        if (isKernelError(error, "unsupported")) return false;
        throw error;
      }
    },
    list: (family) =>
      withFou(ns, (fou) =>
        fou
          .dump(CMD.GET, new Uint8Array(0), () => "list FOU ports", decodeFou)
          .filter((entry) => entry.family === family),
      ),
    add(entry) {
      withFou(ns, (fou) => fou.change(CMD.ADD, encodeFou(entry), () => describe("add", entry)));
    },
    delete(entry) {
      withFou(ns, (fou) => fou.change(CMD.DEL, encodeFou(entry), () => describe("delete", entry)));
    },
  };
}

/** FOU is used a few times in the life of a namespace, so the connection is not kept. */
function withFou<T>(ns: { readonly fd: number }, use: (fou: GenericFamily) => T): T {
  using connection = NetlinkConnection.open(ns, NETLINK.GENERIC);
  const fou = GenericFamily.find(connection, "fou");
  if (fou === undefined) {
    throw new KernelError("unsupported", "Cannot use FOU: this kernel has no fou module; load it with modprobe fou");
  }
  return use(fou);
}

function describe(verb: string, entry: Pick<FouPortEntry, "family" | "port">): string {
  return `${verb} IPv${entry.family} FOU port ${entry.port}`;
}

function encodeFou(entry: Pick<FouPortEntry, "family" | "port"> & Partial<FouPortEntry>): Uint8Array {
  const writer = new MessageWriter().be16(ATTR.PORT, entry.port).u8(ATTR.AF, familyNumber(entry.family));
  if (entry.ipProtocol !== undefined) {
    writer.u8(ATTR.TYPE, entry.gue === true ? ENCAP.GUE : ENCAP.DIRECT);
    // GUE names the protocol in each packet; kernels from 6.19 on refuse attributes that a type does not need.
    if (entry.gue !== true) writer.u8(ATTR.IPPROTO, entry.ipProtocol);
  }
  return writer.bytes;
}

/** Decodes one FOU port. Throws {@link KernelError} `invalid`. */
export function decodeFou(payload: Buffer): FouPortEntry {
  const attributes = Attributes.parse(payload);
  const port = attributes.be16(ATTR.PORT);
  if (port === undefined) throw malformed("a message about a FOU port lacks the port's number");
  const family: IpFamily = attributes.u8(ATTR.AF) === AF.INET6 ? 6 : 4;
  const gue = attributes.u8(ATTR.TYPE) === ENCAP.GUE;
  return { family, port, ipProtocol: attributes.u8(ATTR.IPPROTO) ?? 0, ...(gue ? { gue } : {}) };
}
