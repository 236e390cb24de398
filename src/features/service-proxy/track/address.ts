import { Cidr, IpAddress, type IpFamily, unmappedCidr } from "#base/ip";

/**
 * Reads an address as older versions of Kubernetes accepted it: with spaces around it, and with leading zeros in IPv4, which mean decimal.
 * `undefined` for any other text, and for the other family.
 */
export function lenientAddress(text: string | undefined, family: IpFamily): IpAddress | undefined {
  if (text === undefined) return undefined;
  const trimmed = text.trim();
  const plain = /^\d{1,9}(\.\d{1,9}){3}$/.test(trimmed) ? trimmed.replace(/(^|\.)0+(?=\d)/g, "$1") : trimmed;
  const address = IpAddress.tryParse(plain);
  return address?.family === family ? address : undefined;
}

/**
 * Reads a prefix as {@link lenientAddress} reads an address; host bits are cleared. A prefix of mapped addresses is one of IPv4: API servers before 1.36 accept
 * `::ffff:10.0.0.0/104`, and kube-proxy takes it for 10.0.0.0/8. `undefined`: it is neither.
 */
export function lenientCidr(text: string): Cidr | undefined {
  const [base, length = "", ...rest] = text.trim().split("/");
  const address = lenientAddress(base, 4) ?? lenientAddress(base, 6);
  if (address === undefined || rest.length > 0 || !/^\d{1,3}$/.test(length)) return undefined;
  const bits = Number(length);
  if (bits > address.bits) return undefined;
  return unmappedCidr(Cidr.of(address, bits));
}
