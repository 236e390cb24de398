import type { IpFamily } from "#base/ip";
import type { Address } from "#kernel/address";
import type { Link } from "#kernel/link";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/** An event in a namespace. */
export type MonitorEvent =
  | { readonly kind: "link"; readonly op: "new" | "delete"; readonly link: Link }
  | { readonly kind: "address"; readonly op: "new" | "delete"; readonly address: Address }
  | { readonly kind: "route"; readonly op: "new" | "delete"; readonly route: Route }
  | { readonly kind: "rule"; readonly op: "new" | "delete"; readonly rule: Rule }
  /** The forwarding of packets that come in by a link was set; without `linkIndex` the value for all links of the namespace. */
  | {
      readonly kind: "forwarding";
      readonly family: IpFamily;
      readonly linkIndex: number | undefined;
      readonly isOn: boolean;
    }
  /** Events were lost: read the state again. */
  | { readonly kind: "resync" };

/** The watched kinds of objects. */
export interface MonitorTopics {
  readonly links?: boolean;
  readonly addresses?: boolean;
  readonly routes?: boolean;
  readonly rules?: boolean;
  /** The settings `forwarding` of links, and `ip_forward`. */
  readonly forwarding?: boolean;
}
