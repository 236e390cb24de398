import { ExpectedError } from "#base/errors";
import type { Cidr, IpFamily } from "#base/ip";
import type { ConntrackPort } from "#kernel/conntrack";
import { isKernelError } from "#kernel/errors";
import type { NetStack } from "#kernel/net";
import { familiesOf, type RuleSpec } from "#kernel/rule";
import { type FilterBackend, IptablesError } from "../filter/index.ts";
import { addRule, firstStep, hasTraces, observeNet, syncNet } from "../net-plan/index.ts";
import { isRouter } from "../router/index.ts";
import { isIpv6Off, usableAddresses } from "../tunnel/index.ts";
import { isOriginRule, observeUplinks, planMarks, syncMarks } from "./origin.ts";
import {
  type ClientOptions,
  type ClientPod,
  type ClientSkip,
  type ClosedDestinations,
  clientScope,
  type Gateway,
  guardedDestinations,
  planClient,
} from "./plan.ts";

/** The result of {@link syncClient}. */
export interface ClientSync {
  readonly changes: number;
  /** True if the pod has a tunnel now. */
  readonly hasTunnel: boolean;
  readonly skipped: readonly ClientSkip[];
  /** True if the packet filter that is not in use has nothing of ours, so that it need not be looked at again. */
  readonly isOtherClean: boolean;
  /** The reason why marks of an earlier state may be left, in the other packet filter or on connections. The client is as it should be all the same. */
  readonly faults: readonly ExpectedError[];
}

/**
 * The packet filters and the connection tracking of a client's namespace. Each is opened only for `originatingOnly`: if it is wanted, or a rule shows that
 * it was.
 */
export interface OriginPorts {
  /** The one in use. */
  readonly openFilter: () => FilterBackend & Disposable;
  /** The one that an earlier process may have used; absent: it is known to have nothing of ours. */
  readonly openOther?: (() => FilterBackend & Disposable) | undefined;
  readonly openConntrack: () => ConntrackPort;
}

/**
 * Brings a pod's namespace to what its gateways need. Idempotent, and safe to repeat after it was interrupted at any step. Only one call for a
 * namespace may run at a time. Throws `NetPlanError`, `KernelError`, `NftError` and `IptablesError`.
 */
export async function syncClient(
  net: NetStack,
  pod: Omit<ClientPod, "uplinks">,
  gateways: readonly Gateway[],
  { openFilter, openOther, openConntrack, ...options }: ClientOptions & OriginPorts,
): Promise<ClientSync> {
  // Most pods never were clients. Rules of theirs that happen to have our numbers stay.
  if (gateways.length === 0 && !isClosed(pod) && !wasClient(net, options.port))
    return { changes: 0, hasTunnel: false, skipped: [], isOtherClean: true, faults: [] };
  const { scope, uplinks, plan, skipped } = planOf(net, pod, gateways, options);
  const before = familiesOf(net.rules)
    .flatMap((family) => net.rules.list(family))
    .filter(isOriginRule);
  const marks = planMarks(plan.rules, uplinks);
  let changes = 0;
  // Without a rule of an earlier process there are no marks of it.
  let other: OtherDone = { changes: 0, isClean: before.length === 0 || openOther === undefined };
  const faults: ExpectedError[] = [];
  if (marks.length + before.length > 0) {
    // The rule is first and last: without it nobody would know that there are marks to remove.
    for (const rule of plan.rules.filter(isOriginRule)) {
      if (before.some(({ family, fwmark }) => family === rule.family && fwmark === rule.fwmark)) continue;
      addRule(net, rule);
      changes += 1;
    }
    using filter = openFilter();
    changes += await syncMarks(filter, marks);
    // After those in use are there: both set the same marks, so no connection is without.
    if (!other.isClean && openOther !== undefined) other = await clearOther(openOther);
    if (other.fault !== undefined) faults.push(other.fault);
    const isWanted = (rule: (typeof before)[number]): boolean =>
      plan.rules.some(({ family, fwmark }) => family === rule.family && fwmark === rule.fwmark);
    const former = before.filter((rule) => !isWanted(rule));
    const fault = former.length === 0 ? undefined : await clearMarks(openConntrack, former);
    if (fault !== undefined) faults.push(fault);
  }
  changes += other.changes + (await syncNet(net, plan, scope));
  return { changes, hasTunnel: plan.links.length > 0, skipped, isOtherClean: other.isClean, faults };
}

/**
 * Clears the marks of former rules from connections: one with a mark would go by its interface when the rules return, also in packets that the pod
 * sends first. The connections go on, since another program may do NAT for them. Returns why it cannot.
 */
async function clearMarks(
  open: () => ConntrackPort,
  former: readonly Pick<RuleSpec, "family" | "fwmark">[],
): Promise<ExpectedError | undefined> {
  try {
    using conntrack = open();
    for (const { family, fwmark: value = 0 } of former) await conntrack.clearMarks({ family, mark: { value } });
    return undefined;
  } catch (error) {
    if (!isKernelError(error)) throw error;
    return error;
  }
}

interface OtherDone {
  readonly changes: number;
  readonly isClean: boolean;
  readonly fault?: ExpectedError;
}

/**
 * Removes our marks from the packet filter that is not in use. A system without it, without its library or its part of the kernel, has none of them. One
 * whose kernel refuses it may never have used it: that is no fault of the client.
 */
async function clearOther(open: () => FilterBackend & Disposable): Promise<OtherDone> {
  try {
    using filter = open();
    return { changes: await syncMarks(filter, []), isClean: true };
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    const isMissing =
      isKernelError(error, "unsupported") || (error instanceof IptablesError && error.code === "missing");
    if (isMissing) return { changes: 0, isClean: true };
    return { changes: 0, isClean: false, fault: error };
  }
}

/**
 * The first thing that a pod's namespace lacks of what {@link syncClient} makes, as a step in words; `undefined` if it has all. Changes nothing, and
 * does not look at the packet filter. Throws `KernelError`.
 */
export function lackOfClient(
  net: NetStack,
  pod: Omit<ClientPod, "uplinks">,
  gateways: readonly Gateway[],
  options: ClientOptions,
): string | undefined {
  const { scope, plan } = planOf(net, pod, gateways, options);
  return firstStep(net, plan, scope);
}

const isClosed = ({ closed }: Pick<ClientPod, "closed">): boolean =>
  closed !== undefined && closed.annotation.length + closed.selector.length > 0;

/**
 * The destinations that a pod's namespace keeps unreachable while their tunnels are missing; none if the pod is no client. After a restart nothing else tells which
 * destinations an Egress had that is gone. Changes nothing. Throws `KernelError`.
 */
export function observeClosed(net: NetStack, { port }: Pick<ClientOptions, "port">): ClosedDestinations {
  if (!wasClient(net, port)) return NOTHING_CLOSED;
  return guardedDestinations(observeNet(net, clientScope(port), { settings: new Map(), routes: [] }).routes);
}

const NOTHING_CLOSED: ClosedDestinations = { annotation: [], selector: [] };

/** Returns true if something of a client may be in a namespace. A router on this node has tunnels and routes of the same marks, which are coil-egress's. */
function wasClient(net: NetStack, port: number): boolean {
  const scope = clientScope(port);
  return hasTraces(observeNet(net, scope, { settings: new Map(), routes: [] }), scope) && !isRouter(net);
}

function planOf(net: NetStack, pod: Omit<ClientPod, "uplinks">, gateways: readonly Gateway[], options: ClientOptions) {
  const scope = clientScope(options.port);
  const uplinks = gateways.some(({ originatingOnly }) => originatingOnly) ? observeUplinks(net, scope.isOurLink) : [];
  const addresses = usableAddresses(pod.addresses, isIpv6Off(net, pod.ifname));
  const closed = closedOf(pod, familiesOf(net.rules));
  return { scope, uplinks, ...planClient({ ...pod, addresses, closed, uplinks }, gateways, options) };
}

/** Pure: what is closed of the families that the kernel has. It refuses rules and routes of others, and nothing leaves by them. */
function closedOf({ closed = NOTHING_CLOSED }: Pick<ClientPod, "closed">, families: readonly IpFamily[]) {
  const has = ({ family }: Cidr): boolean => families.includes(family);
  return { annotation: closed.annotation.filter(has), selector: closed.selector.filter(has) };
}
