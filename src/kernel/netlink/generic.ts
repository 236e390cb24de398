import { isKernelError } from "#kernel/errors";
import { Attributes, MessageWriter } from "./attributes.ts";
import type { NetlinkConnection } from "./connection.ts";

/** Numbers of include/uapi/linux/genetlink.h. */
const GENL_ID_CTRL = 0x10;
const CTRL_CMD_GETFAMILY = 3;
const CTRL_ATTR_FAMILY_ID = 1;
const CTRL_ATTR_FAMILY_NAME = 2;
/** Length of `struct genlmsghdr`. */
const HEADER_LENGTH = 4;

/** A family of generic netlink, such as `fou`, whose number was looked up. */
export class GenericFamily {
  readonly #connection: NetlinkConnection;
  readonly #id: number;

  private constructor(connection: NetlinkConnection, id: number) {
    this.#connection = connection;
    this.#id = id;
  }

  /** Looks a family up on a NETLINK_GENERIC connection; `undefined` when the kernel has no such family. */
  static find(connection: NetlinkConnection, name: string): GenericFamily | undefined {
    const body = encode(CTRL_CMD_GETFAMILY, new MessageWriter().string(CTRL_ATTR_FAMILY_NAME, name).bytes);
    try {
      const id = connection.get(
        { type: GENL_ID_CTRL, body, what: () => `find generic netlink family ${name}` },
        ({ payload }) => Attributes.parse(payload.subarray(HEADER_LENGTH)).u16(CTRL_ATTR_FAMILY_ID),
      );
      return id === undefined ? undefined : new GenericFamily(connection, id);
    } catch (error) {
      if (isKernelError(error, "not-found")) return undefined;
      throw error;
    }
  }

  /** Makes a change. Throws {@link KernelError}. */
  change(command: number, attributes: Uint8Array, what: () => string): void {
    this.#connection.change({ type: this.#id, body: encode(command, attributes), what });
  }

  /** Reads one object; `decode` gets its attributes. Throws {@link KernelError}. */
  get<T>(
    command: number,
    attributes: Uint8Array,
    what: () => string,
    decode: (attributes: Buffer) => T,
  ): T | undefined {
    return this.#connection.get({ type: this.#id, body: encode(command, attributes), what }, ({ payload }) =>
      decode(payload.subarray(HEADER_LENGTH)),
    );
  }

  /** Lists objects; `decode` gets the attributes of each. Throws {@link KernelError}. */
  dump<T>(command: number, attributes: Uint8Array, what: () => string, decode: (attributes: Buffer) => T): T[] {
    return this.#connection.dump({ type: this.#id, body: encode(command, attributes), what }, ({ payload }) =>
      decode(payload.subarray(HEADER_LENGTH)),
    );
  }
}

function encode(command: number, attributes: Uint8Array): Uint8Array {
  return new MessageWriter().raw(Uint8Array.of(command, 1, 0, 0)).raw(attributes).bytes;
}
