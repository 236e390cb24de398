import type { NamedNic } from "#kube/nic";
import { hasPort } from "./nic.ts";
import { type ClaimStep, type ClaimView, planClaim } from "./plan-claim.ts";

/** All that decides about what a pass of a claim does next. */
export interface PassView {
  /** Ids of ports with the identity of a recorded one, which are not recorded themselves. */
  readonly surplus: readonly string[];
  /** The label of the claim's node, if the claim has another one. */
  readonly label: string | undefined;
  /** The reason why the pod does not get all NICs that it asks for, if that is news; empty: it gets them again. */
  readonly refusal: string | undefined;
  /** The NICs that the claim gets since its pod asks for them, if others than it has. */
  readonly follow: readonly NamedNic[] | undefined;
  /** The claim as it is with what the last poll has found. */
  readonly claim: ClaimView;
  /** True: the ports of the claim count for the quota already. */
  readonly isAllowed: boolean;
  /** True: the pod waits for its ports before it gets a node. */
  readonly isGated: boolean;
}

/** A step that asks the provider about the ports of a claim. */
export type PortStep = Extract<
  ClaimStep,
  { do: "look-up" | "give-up" | "make" | "unbind" | "bind" | "regroup" | "refuse" }
>;

/** One step of a pass. What a step changes is stored by it, or by the `store` that follows it; a pass may stop after any step. */
export type PassStep =
  | { readonly do: "delete-surplus"; readonly ids: readonly string[] }
  | { readonly do: "label"; readonly label: string }
  | { readonly do: "refuse-change"; readonly why: string }
  | { readonly do: "follow"; readonly nics: readonly NamedNic[] }
  /** The record takes in what the last poll has found. */
  | { readonly do: "observe" }
  /** The ports count for the quota from now on. */
  | { readonly do: "reserve" }
  | { readonly do: "ask"; readonly step: PortStep }
  | { readonly do: "store"; readonly mayHavePorts: boolean }
  /** Claims that wait for what was given back are tried again. */
  | { readonly do: "wake-waiting" }
  | { readonly do: "release" }
  | { readonly do: "look-for-pod" }
  | { readonly do: "publish" }
  | { readonly do: "remove-gate" }
  | { readonly do: "schedule-polls" }
  | { readonly do: "wait"; readonly untilMs: number | undefined };

/**
 * The steps of a claim, in order. After the last one the claim is viewed again, unless that step ends the pass (`wait`, `release`, and a `look-for-pod` that
 * finds the pod). What concerns the claim itself comes before its ports, and alone: it may change what is wanted of them. Pure.
 */
export function planPass(view: PassView): readonly PassStep[] {
  const chores = choresOf(view);
  if (chores.length > 0) return chores;
  const { claim, isAllowed, isGated } = view;
  const step = planClaim(claim);
  switch (step.do) {
    case "release":
    case "look-for-pod":
      return [{ do: "observe" }, step];
    case "wait":
      return [
        { do: "observe" },
        { do: "store", mayHavePorts: isAllowed },
        ...(claim.pod === undefined ? [] : [{ do: "publish" } as const]),
        // Not when the ports are bound: that needs the node.
        ...(isGated && claim.nics.every(hasPort) ? [{ do: "remove-gate" } as const] : []),
        { do: "schedule-polls" },
        step,
      ];
    default:
      return [{ do: "observe" }, ...asking(step, isAllowed)];
  }
}

function asking(step: PortStep, isAllowed: boolean): readonly PassStep[] {
  // A claim whose quota forbids its ports is not planned to ask for them.
  const mayHavePorts = isAllowed || step.do === "look-up" || step.do === "make";
  return [
    // Before anything is awaited, so that no other claim of the tenant is judged without this one.
    ...(mayHavePorts && !isAllowed ? [{ do: "reserve" } as const] : []),
    { do: "ask", step },
    { do: "store", mayHavePorts },
    ...(step.do === "give-up" ? [{ do: "wake-waiting" } as const] : []),
  ];
}

function choresOf({ surplus, label, refusal, follow }: PassView): readonly PassStep[] {
  return [
    ...(surplus.length === 0 ? [] : [{ do: "delete-surplus", ids: surplus } as const]),
    ...(label === undefined ? [] : [{ do: "label", label } as const]),
    ...(refusal === undefined ? [] : [{ do: "refuse-change", why: refusal } as const]),
    ...(follow === undefined ? [] : [{ do: "follow", nics: follow } as const]),
  ];
}
