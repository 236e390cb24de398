import type { Route, RouteSpec } from "#kernel/route";
import type { Rule, RuleSpec } from "#kernel/rule";

/** One difference between the kernel and the wanted state. */
export type RoutingChange =
  | { readonly op: "add-route"; readonly route: RouteSpec }
  | { readonly op: "replace-route"; readonly route: RouteSpec }
  | { readonly op: "delete-route"; readonly route: Route }
  /** `besideEqual`: an equal one with another protocol number is there, and is deleted afterwards. */
  | { readonly op: "add-rule"; readonly rule: RuleSpec; readonly besideEqual?: boolean }
  | { readonly op: "delete-rule"; readonly rule: Rule };
