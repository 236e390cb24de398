import { type Estate, endpoints } from "#base/estate";
import { routerEstate } from "#features/egress";

/** All that a router has; it ends with the network namespace of its pod. Pure. */
export function coilEgressEstate({ fouPort }: { readonly fouPort: number }): Estate {
  return { kernel: routerEstate(fouPort), files: [], folders: [], sections: [endpoints(":8080", ":8081")] };
}
