import { Cidr } from "#base/ip";
import {
  type Address,
  type AddressFilter,
  type AddressKey,
  type AddressPort,
  type AddressSpec,
  checkAddress,
  defaultScope,
  describeAddress,
} from "#kernel/address";
import { dadEnabled, ipv6Enabled, putAddress, removeAddress } from "./addressing.ts";
import type { FakeContext } from "./context.ts";
import { refuse } from "./faults.ts";
import type { FakeNamespace } from "./namespace.ts";

/** The addresses of a fake namespace. */
export class FakeAddressPort implements AddressPort {
  readonly #context: FakeContext;
  readonly #ns: FakeNamespace;

  constructor(context: FakeContext, ns: FakeNamespace) {
    this.#context = context;
    this.#ns = ns;
  }

  list({ linkIndex, family }: AddressFilter = {}): Address[] {
    this.#context.faults.check("addresses.list", "list addresses");
    return this.#ns.addresses.filter(
      (own) =>
        (linkIndex === undefined || own.linkIndex === linkIndex) &&
        (family === undefined || own.address.family === family),
    );
  }

  add(spec: AddressSpec): void {
    const what = this.#begin("add", spec);
    if (this.#find(spec) !== undefined) throw refuse("EEXIST", what, "address already assigned");
    this.#put(spec);
  }

  replace(spec: AddressSpec): void {
    this.#begin("replace", spec);
    const old = this.#find(spec);
    if (old === undefined) {
      this.#put(spec);
      return;
    }
    // Only the flags are changed: the kernel does not change scope, prefix or peer of an existing address.
    this.#ns.addresses = this.#ns.addresses.map((own) =>
      own === old && own.address.family === 6 ? { ...own, noDad: spec.noDad ?? false } : own,
    );
  }

  delete(key: AddressKey): void {
    const what = this.#begin("delete", key);
    const prefixLength = key.prefixLength ?? key.address.bits;
    const own = this.#ns.addresses.find(
      (one) => one.linkIndex === key.linkIndex && one.address.equals(key.address) && one.prefixLength === prefixLength,
    );
    if (own === undefined) throw refuse("EADDRNOTAVAIL", what, "address not found");
    removeAddress(this.#ns, own);
  }

  /** Checks that come first for every verb. Returns the phrase for errors. */
  #begin(verb: "add" | "replace" | "delete", spec: AddressSpec): string {
    checkAddress(verb, spec);
    const what = describeAddress(verb, spec);
    this.#context.faults.check(`addresses.${verb}`, what);
    const link = this.#ns.links.get(spec.linkIndex);
    if (link === undefined) throw refuse("ENODEV", what);
    if (verb !== "delete" && spec.address.family === 6 && !ipv6Enabled(this.#ns, link.name)) {
      throw refuse("EACCES", what, "IPv6 is disabled on this device");
    }
    return what;
  }

  /** In IPv4 the prefix length is part of the key, in IPv6 it is not. */
  #find(spec: AddressSpec): Address | undefined {
    const prefixLength = spec.prefixLength ?? spec.address.bits;
    return this.#ns.addresses.find(
      (own) =>
        own.linkIndex === spec.linkIndex &&
        own.address.equals(spec.address) &&
        (own.address.family === 6 || own.prefixLength === prefixLength),
    );
  }

  #put(spec: AddressSpec): void {
    const { address, linkIndex, peer, noDad = false, protocol } = spec;
    const prefixLength = spec.prefixLength ?? address.bits;
    const link = this.#ns.links.get(linkIndex);
    const inet6Scope = address.isLoopback ? "host" : address.isLinkLocal ? "link" : "global";
    const detects = address.family === 6 && !noDad && link?.kind !== undefined && dadEnabled(this.#ns, link.name);
    const prefix = Cidr.of(address, prefixLength);
    const first = this.#ns.addresses.find(
      (own) => own.linkIndex === linkIndex && own.prefixLength === prefixLength && prefix.contains(own.address),
    );
    putAddress(
      this.#ns,
      {
        linkIndex,
        address,
        prefixLength,
        scope: address.family === 6 ? inet6Scope : defaultScope(spec),
        ...(peer === undefined || peer.equals(address) ? {} : { peer }),
        noDad: address.family === 6 && noDad,
        tentative: detects,
        dadFailed: false,
        permanent: true,
        secondary: address.family === 4 && first !== undefined,
        ...(protocol === undefined ? {} : { protocol }),
      },
      { prefixRoute: spec.noPrefixRoute !== true },
    );
  }
}
