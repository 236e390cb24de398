import { IpAddress, type IpFamily } from "./address.ts";
import { IpParseError } from "./errors.ts";

/** A prefix, immutable: a base address with no host bits set, and a length. */
export class Cidr {
  /** The first address: host bits are zero. */
  readonly base: IpAddress;
  readonly prefixLength: number;

  private constructor(base: IpAddress, prefixLength: number) {
    this.base = base;
    this.prefixLength = prefixLength;
  }

  /**
   * Parses `address/length`. Host bits are masked away, as AddressPools allow (docs/spec/pod-network.md#2.2); with `strict`, a
   * text with host bits is refused. Throws {@link IpParseError} `invalid-cidr`.
   */
  static parse(text: string, options: { readonly strict?: boolean } = {}): Cidr {
    // Callers pass on fields of API objects, which may have another type than declared.
    if (typeof text !== "string") throw new IpParseError("invalid-cidr", `${JSON.stringify(text)} is not a CIDR`);
    const slash = text.indexOf("/");
    const address = slash < 0 ? undefined : IpAddress.tryParse(text.slice(0, slash));
    const lengthText = text.slice(slash + 1);
    if (address === undefined || !/^(0|[1-9]\d{0,2})$/.test(lengthText) || Number(lengthText) > address.bits) {
      throw new IpParseError("invalid-cidr", `"${text}" is not a CIDR; examples are 10.0.0.0/16 and fd00::/64`);
    }
    const cidr = Cidr.of(address, Number(lengthText));
    if (options.strict === true && !cidr.base.equals(address)) {
      throw new IpParseError("invalid-cidr", `"${text}" has host bits set; did you mean ${cidr}?`);
    }
    return cidr;
  }

  /** Parses as {@link Cidr.parse} does, but returns `undefined` for text that is not a CIDR. */
  static tryParse(text: string): Cidr | undefined {
    try {
      return Cidr.parse(text);
    } catch (error) {
      if (error instanceof IpParseError) return undefined;
      throw error;
    }
  }

  /** The prefix of the given length around `address`. Throws {@link IpParseError} when the length is out of range. */
  static of(address: IpAddress, prefixLength: number): Cidr {
    if (!Number.isInteger(prefixLength) || prefixLength < 0 || prefixLength > address.bits) {
      throw new IpParseError("invalid-cidr", `/${prefixLength} is not a prefix length of IPv${address.family}`);
    }
    const hostBits = BigInt(address.bits - prefixLength);
    return new Cidr(IpAddress.fromValue(address.family, (address.value >> hostBits) << hostBits), prefixLength);
  }

  /** The /32 or /128 of one address. */
  static host(address: IpAddress): Cidr {
    return new Cidr(address, address.bits);
  }

  get family(): IpFamily {
    return this.base.family;
  }

  get hostBits(): number {
    return this.base.bits - this.prefixLength;
  }

  /** The number of addresses, including the first (all host bits 0) and the last (all host bits 1). */
  get size(): bigint {
    return 1n << BigInt(this.hostBits);
  }

  get first(): IpAddress {
    return this.base;
  }

  get last(): IpAddress {
    return this.base.plus(this.size - 1n);
  }

  /** The address at `index`, from 0. Throws `RangeError` past the end. */
  at(index: bigint | number): IpAddress {
    const offset = BigInt(index);
    if (offset < 0n || offset >= this.size) throw new RangeError(`${this} has no address ${offset}`);
    return this.base.plus(offset);
  }

  /** The offset of an address from the base; `undefined` for an address outside the prefix. */
  indexOf(address: IpAddress): bigint | undefined {
    return this.contains(address) ? address.value - this.base.value : undefined;
  }

  /** The prefix number `index` (from 0) of length `prefixLength` inside this prefix. Throws `RangeError` past the end. */
  subnet(prefixLength: number, index: bigint | number): Cidr {
    const at = BigInt(index);
    const bits = prefixLength - this.prefixLength;
    if (bits < 0 || at < 0n || at >= 1n << BigInt(bits))
      throw new RangeError(`${this} has no /${prefixLength} number ${at}`);
    return Cidr.of(this.base.plus(at << BigInt(this.base.bits - prefixLength)), prefixLength);
  }

  /** True when every address of `other` is in this prefix. */
  contains(other: IpAddress | Cidr): boolean {
    const address = other instanceof Cidr ? other.base : other;
    const length = other instanceof Cidr ? other.prefixLength : other.bits;
    if (address.family !== this.family || length < this.prefixLength) return false;
    // In JavaScript a shift by 32 bits does nothing, so the length 0 is a case of its own.
    if (this.family === 4) return this.prefixLength === 0 || (address.low32 ^ this.base.low32) >>> this.hostBits === 0;
    const hostBits = BigInt(this.hostBits);
    return address.value >> hostBits === this.base.value >> hostBits;
  }

  overlaps(other: Cidr): boolean {
    return this.contains(other) || other.contains(this);
  }

  equals(other: Cidr): boolean {
    return this.prefixLength === other.prefixLength && this.base.equals(other.base);
  }

  /** Orders prefixes by base address; of two prefixes with the same base, the shorter is first. */
  compare(other: Cidr): number {
    return this.base.compare(other.base) || this.prefixLength - other.prefixLength;
  }

  toString(): string {
    return `${this.base}/${this.prefixLength}`;
  }

  toJSON(): string {
    return this.toString();
  }
}
