/**
 * Adds to the text of a connection's failure what to do if the machine has no route. A cluster IP needs one too: rules for Services are met only
 * after the kernel has found a route. Pure.
 */
export function withRouteHint(failure: string): string {
  if (!failure.includes("ENETUNREACH")) return failure;
  return `${failure}; this machine has no route to the address: give it a default route, or a route to the range of Services if it is a cluster IP`;
}
