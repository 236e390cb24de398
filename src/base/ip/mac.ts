import { IpParseError } from "./errors.ts";

/** A 48-bit MAC address, immutable. */
export class MacAddress {
  readonly #bytes: Uint8Array;

  private constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
  }

  /** Parses six hexadecimal bytes separated by colons or hyphens. Throws {@link IpParseError} `invalid-mac`. */
  static parse(text: string): MacAddress {
    if (!/^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$/.test(text)) {
      throw new IpParseError("invalid-mac", `"${text}" is not a MAC address; an example is 02:00:00:00:00:01`);
    }
    return new MacAddress(Uint8Array.from(text.split(/[:-]/), (part) => Number.parseInt(part, 16)));
  }

  /** Makes a MAC address from 6 bytes. Throws {@link IpParseError} for another length. */
  static fromBytes(bytes: Uint8Array): MacAddress {
    if (bytes.length !== 6) throw new IpParseError("invalid-mac", `a MAC address has 6 bytes, not ${bytes.length}`);
    return new MacAddress(Uint8Array.from(bytes));
  }

  /** Returns a copy of the 6 bytes. */
  toBytes(): Uint8Array {
    return Uint8Array.from(this.#bytes);
  }

  equals(other: MacAddress): boolean {
    return this.toString() === other.toString();
  }

  /** The text in lower case with colons. */
  toString(): string {
    return Array.from(this.#bytes, (byte) => byte.toString(16).padStart(2, "0")).join(":");
  }

  toJSON(): string {
    return this.toString();
  }
}
