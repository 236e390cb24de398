import { SETS } from "./sets.ts";
import type { Chain, KeyPart, Match, Rule, RuleOptions } from "./types.ts";

/**
 * A kind of chain that many front ends share (docs/spec/service-proxy.md#2.7): `lb` balances over the cluster's endpoints, `lbl` over this
 * node's. `ext` marks for masquerade first. `extl` keeps the client's address, and sends pods and the node to the whole cluster.
 */
export interface Shape {
  readonly kind: "lb" | "lbl" | "ext" | "extl";
  /** True if packets reach the front end by NodePort instead of by address. */
  readonly isNodePort: boolean;
  readonly hasAffinity: boolean;
  /** Number of endpoints; 0 only for `extl`, which then drops external packets. */
  readonly count: number;
}

const PREFIXES = { lb: "lb", lbl: "lbl", ext: "ext-lb", extl: "extl" } as const;

/** `lb-3`, `np-aff-ext-lb-2`. */
export function shapeName({ kind, isNodePort, hasAffinity, count }: Shape): string {
  return `${isNodePort ? "np-" : ""}${hasAffinity ? "aff-" : ""}${PREFIXES[kind]}-${count}`;
}

/** Parses {@link shapeName}; `undefined` for any other chain. */
export function parseShape(name: string): Shape | undefined {
  const match = /^(np-)?(aff-)?(lb|lbl|ext-lb|extl)-(0|[1-9]\d{0,6})$/.exec(name);
  if (match === null) return undefined;
  const [, np, aff, prefix, digits] = match;
  const kind = prefix === "ext-lb" ? "ext" : (prefix as "lb" | "lbl" | "extl");
  const count = Number(digits);
  if (count === 0 && kind !== "extl") return undefined;
  return { kind, isNodePort: np !== undefined, hasAffinity: aff !== undefined, count };
}

/** The chains that a shape needs, in such an order that a chain comes after those that it goes to. */
export function shapeChains(shape: Shape, options: RuleOptions): Chain[] {
  const { kind, count } = shape;
  const plain: Shape = { ...shape, hasAffinity: false };
  if (kind === "lb" || kind === "lbl") {
    const chain = { name: shapeName(plain), rules: balance(plain) };
    if (!shape.hasAffinity) return [chain];
    return [chain, { name: shapeName(shape), rules: [affinityRule(shape), goTo(shapeName(plain))] }];
  }
  const inner: Shape = { ...shape, kind: kind === "ext" ? "lb" : "lbl" };
  if (kind === "ext") {
    return [
      ...shapeChains(inner, options),
      {
        name: shapeName(shape),
        rules: [{ matches: [], actions: [{ kind: "mark" }, { kind: "goto", chain: shapeName(inner) }] }],
      },
    ];
  }
  const last: Rule = count === 0 ? { matches: [], actions: [{ kind: "drop" }] } : goTo(shapeName(inner));
  const needed = count === 0 ? [] : shapeChains(inner, options);
  return [...needed, { name: shapeName(shape), rules: [...shortCircuit(shape, options), last] }];
}

const PROTOCOLS: Match = { kind: "protocol", protocols: ["TCP", "UDP", "SCTP"] };

/** Parts of a front end's key. */
export function frontEndKey(isNodePort: boolean): readonly KeyPart[] {
  return isNodePort ? ["protocol", "dport"] : ["daddr", "protocol", "dport"];
}

/**
 * Rules that translate to the endpoint in a random slot, else to the one in slot 0, else drop the packet. The random slot may be missing if
 * the packet saw an old verdict and new endpoints (docs/spec/service-proxy.md#2.8): the packet must not continue untranslated.
 */
function balance({ kind, isNodePort, count }: Shape): Rule[] {
  const cluster = isNodePort ? SETS.nodePortEndpoints : SETS.endpoints;
  const local = isNodePort ? SETS.nodePortEndpointsLocal : SETS.endpointsLocal;
  const to = (slots: number): Rule => ({
    matches: [PROTOCOLS],
    actions: [{ kind: "dnat", map: kind === "lb" ? cluster : local, key: [...frontEndKey(isNodePort), { slots }] }],
  });
  return [...(count > 1 ? [to(count)] : []), to(1), { matches: [], actions: [{ kind: "drop" }] }];
}

function affinityRule({ isNodePort }: Shape): Rule {
  return { matches: [PROTOCOLS], actions: [{ kind: "recall", isNodePort }] };
}

function shortCircuit({ isNodePort }: Shape, { detector }: RuleOptions): Rule[] {
  const map = isNodePort ? SETS.nodePortLocalVerdicts : SETS.localVerdicts;
  const key = frontEndKey(isNodePort);
  const local: Match = { kind: "local", part: "saddr" };
  return [
    ...(detector === undefined
      ? []
      : [{ matches: [{ kind: "pod" as const, detector }], actions: [{ kind: "map" as const, map, key }] }]),
    { matches: [local], actions: [{ kind: "mark" }] },
    { matches: [local], actions: [{ kind: "map", map, key }] },
  ];
}

function goTo(chain: string): Rule {
  return { matches: [], actions: [{ kind: "goto", chain }] };
}
