import { IpAddress } from "./address.ts";
import { Cidr } from "./cidr.ts";
import { IpParseError } from "./errors.ts";

/** All addresses from `first` to `last`, both included. */
export class IpRange {
  readonly first: IpAddress;
  readonly last: IpAddress;

  /** Throws {@link IpParseError} `invalid-range` when the families differ or `last` is before `first`. */
  constructor(first: IpAddress, last: IpAddress) {
    if (first.family !== last.family || first.compare(last) > 0) {
      throw new IpParseError(
        "invalid-range",
        `${first}-${last} is not a range: the end must follow the start in one family`,
      );
    }
    this.first = first;
    this.last = last;
  }

  /** Parses `first-last`, or a CIDR. Throws {@link IpParseError}. */
  static parse(text: string): IpRange {
    if (text.includes("/")) return IpRange.of(Cidr.parse(text));
    const dash = text.indexOf("-");
    const first = dash < 0 ? undefined : IpAddress.tryParse(text.slice(0, dash).trim());
    const last = dash < 0 ? undefined : IpAddress.tryParse(text.slice(dash + 1).trim());
    if (first === undefined || last === undefined) {
      throw new IpParseError("invalid-range", `"${text}" is not a range, such as 10.0.0.1-10.0.0.9`);
    }
    return new IpRange(first, last);
  }

  static of(cidr: Cidr): IpRange {
    return new IpRange(cidr.first, cidr.last);
  }

  get size(): bigint {
    return this.last.value - this.first.value + 1n;
  }

  contains(address: IpAddress): boolean {
    return (
      address.family === this.first.family && address.value >= this.first.value && address.value <= this.last.value
    );
  }

  overlaps(other: IpRange): boolean {
    return this.contains(other.first) || other.contains(this.first);
  }

  /** The fewest prefixes that cover exactly this range, ascending. */
  toCidrs(): Cidr[] {
    const cidrs: Cidr[] = [];
    const { family, bits } = this.first;
    for (let at = this.first.value; at <= this.last.value; ) {
      let hostBits = 0n;
      while (
        hostBits < BigInt(bits) &&
        (at & ((1n << (hostBits + 1n)) - 1n)) === 0n &&
        at + (1n << (hostBits + 1n)) - 1n <= this.last.value
      ) {
        hostBits += 1n;
      }
      cidrs.push(Cidr.of(IpAddress.fromValue(family, at), bits - Number(hostBits)));
      at += 1n << hostBits;
    }
    return cidrs;
  }

  toString(): string {
    return `${this.first}-${this.last}`;
  }
}
