import type { IpAddress, IpFamily } from "#base/ip";

/** The scope of an address; a number for a scope without a name. */
export type AddressScope = "global" | "site" | "link" | "host" | "nowhere" | number;

/** An address on a link, as the kernel reports it. */
export interface Address {
  readonly linkIndex: number;
  /** The address of this host (IFA_LOCAL). */
  readonly address: IpAddress;
  readonly prefixLength: number;
  readonly scope: AddressScope;
  /** The other end of a point-to-point link. */
  readonly peer?: IpAddress;
  /** IPv4 only: the label, if it is not just the link's name. */
  readonly label?: string;
  /** True if duplicate address detection is off for the address. */
  readonly noDad: boolean;
  /** Duplicate address detection is still running: the address cannot be used yet. */
  readonly tentative: boolean;
  /** Duplicate address detection found another owner. */
  readonly dadFailed: boolean;
  /** True if the preferred lifetime is over: no new connection should start from the address. Otherwise absent. */
  readonly deprecated?: boolean;
  /** True if the address was set by an administrator, not learnt (IFA_F_PERMANENT). */
  readonly permanent: boolean;
  /** IPv4: true if the address is not the first of its prefix on the link. */
  readonly secondary: boolean;
  /**
   * The number of the program that set the address (IFA_PROTO). The kernel uses 1 to 3. A program chooses its own with {@link AddressSpec}.
   * Absent if unknown.
   */
  readonly protocol?: number;
}

/** An address to add. */
export interface AddressSpec {
  readonly linkIndex: number;
  readonly address: IpAddress;
  /** Default: the whole address (/32 or /128). */
  readonly prefixLength?: number | undefined;
  /** Default `global`; `host` for loopback addresses. IPv6 scopes follow from the address. */
  readonly scope?: AddressScope | undefined;
  readonly peer?: IpAddress | undefined;
  /** IPv6: if true, the address is usable at once, without 1.4 to 2 s of duplicate address detection. */
  readonly noDad?: boolean | undefined;
  /** If true, the kernel does not add the prefix route. */
  readonly noPrefixRoute?: boolean | undefined;
  /** The number of the owner, which the kernel stores with the address: 4 to 255. Linux before 5.18 ignores this number. */
  readonly protocol?: number | undefined;
}

/** The address to delete. */
export type AddressKey = Pick<AddressSpec, "linkIndex" | "address" | "prefixLength">;

export interface AddressFilter {
  readonly linkIndex?: number | undefined;
  readonly family?: IpFamily | undefined;
}

/** The addresses of one namespace. Every method throws {@link KernelError} and takes some 20 µs. */
export interface AddressPort {
  list(filter?: AddressFilter): Address[];
  /** Throws `already-exists` when the link has the address, `no-device` when there is no such link. */
  add(spec: AddressSpec): void;
  /** Adds an address as `add` does; an existing address is changed to `spec`. */
  replace(spec: AddressSpec): void;
  /** Throws `not-found` when the link does not have the address with that prefix length. */
  delete(key: AddressKey): void;
}
