import type { IpAddress, IpFamily } from "#base/ip";
import type { Endpoint, ServicePort } from "../model/index.ts";
import { addressesOf, endpoint, NODE_PORT, SERVICE_PORT, type Sender } from "./fixture.ts";

/** Kind of a front end. */
export type FrontEndKind = "clusterIP" | "loadBalancerIP" | "externalIP" | "nodePort";

/** `L`: the endpoint on this node, `C`: any endpoint, with M: masqueraded. Or dropped, or rejected. */
export type Expected = "C" | "CM" | "L" | "LM" | "drop" | "reject";

/** One row: sender, front end, policy, and the expected result. */
export interface Row {
  readonly name: string;
  readonly service: Partial<ServicePort>;
  readonly endpoints: readonly ("local" | "remote" | Endpoint)[];
  readonly kind: FrontEndKind;
  readonly sender: Sender;
  readonly expected: Expected;
  readonly masqueradeAll?: boolean;
  readonly hasDetector?: boolean;
}

const BOTH = ["local", "remote"] as const;
const SENDERS = ["pod", "node", "external"] as const;
const OUTER = ["loadBalancerIP", "externalIP", "nodePort"] as const;
type Expectation = Readonly<Record<Sender, Expected>>;

function rows(
  name: string,
  kinds: readonly FrontEndKind[],
  expected: Expectation,
  what: Omit<Row, "name" | "kind" | "sender" | "expected">,
): Row[] {
  return kinds.flatMap((kind) =>
    SENDERS.map((sender) => ({
      ...what,
      name: `${name}: ${sender} to ${kind}`,
      kind,
      sender,
      expected: expected[sender],
    })),
  );
}

/** The traffic matrix (docs/spec/service-proxy.md#2.4), row by row. */
export function matrix(family: IpFamily): readonly Row[] {
  const local = { externalTrafficPolicy: "Local" } as const;
  const inner = { internalTrafficPolicy: "Local" } as const;
  const terminating = (where: "local" | "remote"): Endpoint =>
    endpoint(family, where, { ready: false, terminating: true });
  const down = (where: "local" | "remote"): Endpoint => endpoint(family, where, { ready: false, serving: false });
  const all = (expected: Expected): Expectation => ({ pod: expected, node: expected, external: expected });
  const CLUSTER_IP = ["clusterIP"] as const;
  const kinds = [...CLUSTER_IP, ...OUTER];
  return [
    ...rows("iTP Cluster", CLUSTER_IP, { pod: "C", node: "CM", external: "CM" }, { service: {}, endpoints: BOTH }),
    ...rows("iTP Local", CLUSTER_IP, { pod: "L", node: "LM", external: "LM" }, { service: inner, endpoints: BOTH }),
    ...rows("iTP Local, none here", CLUSTER_IP, all("drop"), { service: inner, endpoints: ["remote"] }),
    ...rows(
      "iTP Local, one here terminates",
      CLUSTER_IP,
      { pod: "L", node: "LM", external: "LM" },
      {
        service: inner,
        endpoints: [terminating("local"), "remote"],
      },
    ),
    ...rows("eTP Cluster", OUTER, all("CM"), { service: {}, endpoints: BOTH }),
    ...rows("eTP Local", OUTER, { pod: "C", node: "CM", external: "L" }, { service: local, endpoints: BOTH }),
    ...rows(
      "eTP Local, none here",
      OUTER,
      { pod: "C", node: "CM", external: "drop" },
      { service: local, endpoints: ["remote"] },
    ),
    ...rows(
      "eTP Local, one here terminates",
      OUTER,
      { pod: "C", node: "CM", external: "L" },
      {
        service: local,
        endpoints: [terminating("local"), "remote"],
      },
    ),
    ...rows("masquerade-all", CLUSTER_IP, all("CM"), { service: {}, endpoints: BOTH, masqueradeAll: true }),
    ...rows("no detector", CLUSTER_IP, all("C"), { service: {}, endpoints: BOTH, hasDetector: false }),
    ...rows(
      "no detector, eTP Local",
      OUTER,
      { pod: "L", node: "CM", external: "L" },
      {
        service: local,
        endpoints: BOTH,
        hasDetector: false,
      },
    ),
    ...rows("no endpoints", kinds, all("reject"), { service: {}, endpoints: [] }),
    ...rows("none ready", kinds, all("reject"), { service: {}, endpoints: [down("local"), down("remote")] }),
    ...rows("no endpoints, Local", kinds, all("reject"), { service: { ...local, ...inner }, endpoints: [] }),
    ...rows(
      "all terminate",
      CLUSTER_IP,
      { pod: "C", node: "CM", external: "CM" },
      {
        service: {},
        endpoints: [terminating("local"), terminating("remote")],
      },
    ),
    ...rows("all terminate, eTP Cluster", OUTER, all("CM"), {
      service: {},
      endpoints: [terminating("local"), terminating("remote")],
    }),
  ];
}

/** Address and port of a front end. */
export function frontEndAddress(
  family: IpFamily,
  kind: FrontEndKind,
): { readonly address: IpAddress; readonly port: number } {
  const addresses = addressesOf(family);
  return kind === "nodePort"
    ? { address: addresses.node, port: NODE_PORT }
    : { address: addresses[kind], port: SERVICE_PORT };
}
