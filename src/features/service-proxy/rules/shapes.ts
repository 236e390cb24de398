import { SETS } from "./sets.ts";
import type { Chain, KeyPart, Match, Rule, RuleOptions } from "./types.ts";

/**
 * A chain that many front ends share (docs/spec/service-proxy.md#2.7): `lb` spreads over the cluster's endpoints, `lbl` over this node's,
 * `ext` marks for masquerade first, `extl` keeps the client's address and lets pods and the node go to the whole cluster.
 */
export interface Shape {
  readonly kind: "lb" | "lbl" | "ext" | "extl";
  /** Reached by NodePort instead of by address. */
  readonly isNodePort: boolean;
  readonly hasAffinity: boolean;
  /** Endpoints to spread over; 0 only for `extl`, which then drops what comes from outside. */
  readonly count: number;
}

const PREFIXES = { lb: "lb", lbl: "lbl", ext: "ext-lb", extl: "extl" } as const;

/** `lb-3`, `np-aff-ext-lb-2`. */
export function shapeName({ kind, isNodePort, hasAffinity, count }: Shape): string {
  return `${isNodePort ? "np-" : ""}${hasAffinity ? "aff-" : ""}${PREFIXES[kind]}-${count}`;
}

/** Reads {@link shapeName}; `undefined` for any other chain. */
export function parseShape(name: string): Shape | undefined {
  const match = /^(np-)?(aff-)?(lb|lbl|ext-lb|extl)-(0|[1-9]\d{0,6})$/.exec(name);
  if (match === null) return undefined;
  const [, np, aff, prefix, digits] = match;
  const kind = prefix === "ext-lb" ? "ext" : (prefix as "lb" | "lbl" | "extl");
  const count = Number(digits);
  if (count === 0 && kind !== "extl") return undefined;
  return { kind, isNodePort: np !== undefined, hasAffinity: aff !== undefined, count };
}

/** The chains that a shape needs, those it goes to first. */
export function shapeChains(shape: Shape, options: RuleOptions): Chain[] {
  const { kind, count } = shape;
  const plain: Shape = { ...shape, hasAffinity: false };
  if (kind === "lb" || kind === "lbl") {
    const chain = { name: shapeName(plain), rules: spread(plain) };
    if (!shape.hasAffinity) return [chain];
    return [chain, { name: shapeName(shape), rules: [rememberedRule(), goTo(shapeName(plain))] }];
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

/** Key of the front end that a packet is at. */
export function frontEndKey(isNodePort: boolean): readonly KeyPart[] {
  return isNodePort ? ["protocol", "dport"] : ["daddr", "protocol", "dport"];
}

/**
 * A random slot; else slot 0; else drop. The first misses where a packet saw the verdict of one moment and the endpoints of
 * another (docs/spec/service-proxy.md#2.8): never let it go on untranslated.
 */
function spread({ kind, isNodePort, count }: Shape): Rule[] {
  const cluster = isNodePort ? SETS.nodePortEndpoints : SETS.endpoints;
  const local = isNodePort ? SETS.nodePortEndpointsLocal : SETS.endpointsLocal;
  const to = (slots: number): Rule => ({
    matches: [PROTOCOLS],
    actions: [{ kind: "dnat", map: kind === "lb" ? cluster : local, key: [...frontEndKey(isNodePort), { slots }] }],
  });
  return [...(count > 1 ? [to(count)] : []), to(1), { matches: [], actions: [{ kind: "drop" }] }];
}

function rememberedRule(): Rule {
  const key: readonly KeyPart[] = ["saddr", "daddr", "protocol", "dport"];
  return { matches: [PROTOCOLS], actions: [{ kind: "dnat", map: SETS.affinity, key }] };
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
