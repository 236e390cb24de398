import type { IpFamily } from "#base/ip";
import type { ServicePort } from "../model/index.ts";
import type { SliceView } from "./slice.ts";

/**
 * The maximum number of elements of a Service in one family's table. A list of endpoints or ranges is in the table for each address and port, so an object of 1.5 MiB could
 * ask for a billion elements, which neither this program nor the kernel can hold. The kernel takes some 130 bytes for an element.
 */
export const MAX_ELEMENTS = 2_097_152;

/**
 * Pure: an upper bound for the elements that a Service takes in a table: for each of its front ends itself, its endpoints and its ranges. In time with the lists, not with their
 * product.
 */
export function elementsOf(ports: readonly ServicePort[], slices: readonly SliceView[]): number {
  const endpoints = new Map<string, number>();
  for (const slice of slices)
    for (const { name, protocol } of slice.ports) {
      const key = `${name}/${protocol}`;
      endpoints.set(key, (endpoints.get(key) ?? 0) + slice.endpoints.length);
    }
  let elements = 0;
  for (const { portName, protocol, externalIPs, loadBalancerIPs, nodePort, sourceRanges } of ports) {
    const frontEnds = 1 + externalIPs.length + loadBalancerIPs.length + Number(nodePort > 0);
    elements += frontEnds * (1 + (endpoints.get(`${portName}/${protocol}`) ?? 0));
    elements += loadBalancerIPs.length * (sourceRanges?.length ?? 0);
  }
  return elements;
}

/** Pure: says that a Service of so many elements is too large for the table of a family. */
export function tooLargeText(family: IpFamily, elements: number): string {
  return `its ports, at all of its addresses, with all endpoints and source ranges, are up to ${elements} elements of the IPv${family} table, more than ${MAX_ELEMENTS}`;
}

/** Pure: the ports as text that tells them from others. The lists that all ports of a Service share are in it once. */
export function portsText(ports: readonly ServicePort[]): string {
  const lists = new Map<readonly unknown[], number>();
  const numberOf = (list: readonly unknown[] | undefined): number => {
    if (list === undefined) return -1;
    const known = lists.get(list);
    if (known !== undefined) return known;
    lists.set(list, lists.size);
    return lists.size - 1;
  };
  const texts = ports.map(({ externalIPs, loadBalancerIPs, sourceRanges, ...port }) => [
    port,
    ...[externalIPs, loadBalancerIPs, sourceRanges].map(numberOf),
  ]);
  // Addresses and ranges are text in JSON.
  return JSON.stringify([texts, [...lists.keys()]]);
}
