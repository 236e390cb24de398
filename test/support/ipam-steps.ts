/** The steps of the model of addresses: what can happen, and how often. */
import fc from "fast-check";

/** Each operation and its weight. */
const OPS = {
  add: 30,
  del: 8,
  check: 6,
  "add-again": 4,
  burst: 4,
  gc: 3,
  forget: 1,
  "lose-namespace": 1,
  "lose-sandbox": 1,
  "failed-del": 2,
  "remove-link": 1,
  kill: 2,
  "kill-in-add": 2,
  "kill-in-del": 1,
  "kill-in-start": 1,
  "api-fault": 3,
  "kernel-fault": 2,
  reboot: 1,
  "cut-off": 1,
  heal: 2,
  "delete-node": 1,
  register: 4,
  "collect-pods": 1,
  "register-in-pass": 1,
  // The conditions for the deletion of a Node's blocks, which are rare at random.
  "give-up": 1,
  wait: 2,
  "new-leader": 1,
  "controller-fault": 1,
  "controller-away": 1,
  "append-subnet": 1,
  "forbidden-edit": 1,
  reserve: 1,
  unreserve: 2,
  "delete-block": 1,
  "force-block-away": 1,
  "delete-pool": 1,
  "drain-pool": 1,
} as const;
export type Op = keyof typeof OPS;

/** Operations after which a fault may be left that has hit nothing, or a process that is dead; each program then recovers. */
export const FAULTS: ReadonlySet<Op> = new Set([
  "failed-del",
  "kill-in-add",
  "kill-in-del",
  "kill-in-start",
  "api-fault",
  "kernel-fault",
  "controller-fault",
  "controller-away",
]);

/** Operations that need no `coild`: it is started before the others. */
export const WITHOUT_COILD: ReadonlySet<Op> = new Set([
  "wait",
  "delete-node",
  "collect-pods",
  "give-up",
  "new-leader",
  "kill",
  "reboot",
  "kill-in-start",
]);

/** Operations of the kernel of which one fails. */
export const KERNEL_FAULTS = [
  "links.create",
  "links.set",
  "links.delete",
  "links.deleteMany",
  "addresses.add",
  "addresses.replace",
  "routes.add",
  "routes.replace",
  "routes.delete",
];

export interface Step {
  readonly op: Op;
  /** Which machine, and which of its pods. */
  readonly node: number;
  readonly id: number;
  /** After how many calls it happens, where something happens in the middle. */
  readonly at: number;
}

/** Any step, as often as its weight says, for so many machines with so many pods each. */
export function anyStep(machines: number, pods: number): fc.Arbitrary<Step> {
  const weighted = Object.entries(OPS).map(([op, weight]) => ({ arbitrary: fc.constant(op as Op), weight }));
  return fc.record({ op: fc.oneof(...weighted), node: fc.nat(machines - 1), id: fc.nat(pods - 1), at: fc.nat(40) });
}
