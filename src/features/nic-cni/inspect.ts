import { describeError, ExpectedError } from "#base/errors";
import { Cidr } from "#base/ip";
import type { OvsSwitch } from "#cloud/ovsdb";
import type { Kernel, NetStack } from "#kernel/net";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";
import { deviceOf, type ExplainedNic, type NicDevice } from "./device.ts";
import { DEVICES } from "./devices.ts";
import { ownerOf } from "./names.ts";
import { openHost, openIfThere } from "./namespaces.ts";
import { isOurRule, rulesOf, type SandboxSide } from "./sandbox.ts";
import type { NicPlan, SandboxPlan } from "./types.ts";

/** The plan of one NIC, and what its network namespace has. */
export interface InspectedNic extends Pick<ExplainedNic, "isConfigured" | "devices" | "port"> {
  readonly name: string;
  readonly portId: string;
  /** The kind of its device. */
  readonly kind: string;
  readonly isPending?: boolean | undefined;
  readonly mac?: string | undefined;
  readonly mtu?: number | undefined;
  readonly addresses: readonly string[];
  /** The differences between the network namespace and the plan, in words; also what it has too much. */
  readonly differences: readonly string[];
  readonly link?:
    | {
        readonly isUp: boolean;
        readonly mac?: string | undefined;
        readonly mtu: number;
        readonly addresses: readonly string[];
        readonly routes: readonly string[];
        readonly rules: readonly string[];
      }
    | undefined;
}

/** Everything of NICs on a node, as plain data. */
export interface InspectedNics {
  readonly sandboxes: readonly {
    readonly containerId: string;
    readonly podUid: string;
    readonly netns: string;
    readonly isThere: boolean;
    readonly nics: readonly InspectedNic[];
  }[];
  /** The host's devices with our alias. */
  readonly devices: readonly {
    readonly name: string;
    readonly isUp: boolean;
    readonly master?: string | undefined;
    readonly portId: string;
    readonly containerId: string;
  }[];
  readonly switches: readonly {
    readonly ovsdb: string;
    readonly fault?: string | undefined;
    readonly bridges: readonly string[];
    readonly ports: Awaited<ReturnType<OvsSwitch["ports"]>>;
  }[];
}

const MAIN_TABLE = 254;
/** The origins of routes that somebody has set: boot and static, of rtnetlink(7). */
const SET_BY_HAND: ReadonlySet<number> = new Set([3, 4]);

/**
 * Reads what is there of all plans, and what has our marks besides. Changes nothing. `ovsdb` is a switch that is read although no plan names it.
 * A switch that does not answer, and a sandbox that cannot be read, are part of the result. Rejects with `KernelError` for the host's own devices, and with
 * the signal's reason.
 */
export async function inspectNics(
  deps: {
    readonly kernel: Kernel;
    readonly switchOf: (ovsdb: string) => OvsSwitch;
    /** Default: those of this suite. */
    readonly devices?: readonly NicDevice[] | undefined;
  },
  plans: readonly SandboxPlan[],
  { ovsdb, signal }: { readonly ovsdb: string; readonly signal: AbortSignal },
): Promise<InspectedNics> {
  const { kernel, devices = DEVICES } = deps;
  const used = plans.flatMap(({ nics }) =>
    nics.flatMap((nic) => deviceOf(nic, devices).explain(nic).port?.ovsdb ?? []),
  );
  const switches = await Promise.all(
    Array.from(new Set([...used, ovsdb]), (path) => inspectSwitch(path, deps.switchOf(path), { signal })),
  );
  using host = openHost(kernel);
  const sandboxes = plans.map((plan) => inspectOrTell(kernel, plan, devices));
  return { sandboxes, devices: devicesOf(host), switches };
}

async function inspectSwitch(
  ovsdb: string,
  ovs: OvsSwitch,
  options: { readonly signal: AbortSignal },
): Promise<InspectedNics["switches"][number]> {
  try {
    const [bridges, ports] = await Promise.all([ovs.bridges(options), ovs.ports(options)]);
    return { ovsdb, bridges: bridges.map(({ name }) => name), ports };
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    return { ovsdb, fault: describeError(error), bridges: [], ports: [] };
  }
}

function devicesOf(host: NetStack): InspectedNics["devices"] {
  const links = host.links.list();
  return links.flatMap(({ name, up, alias, masterIndex }) => {
    const owner = ownerOf(alias);
    const master = masterIndex === undefined ? undefined : links.find(({ index }) => index === masterIndex)?.name;
    return owner === undefined ? [] : [{ name, isUp: up, ...(master === undefined ? {} : { master }), ...owner }];
  });
}

/** One namespace that cannot be read, as when it ends meanwhile, must not hide the others. */
function inspectOrTell(
  kernel: Kernel,
  plan: SandboxPlan,
  devices: readonly NicDevice[],
): InspectedNics["sandboxes"][number] {
  try {
    return inspectSandbox(kernel, plan, devices);
  } catch (error) {
    if (!(error instanceof ExpectedError)) throw error;
    const { containerId, podUid, netns, nics } = plan;
    const text = `it cannot be read: ${describeError(error)}`;
    const unread = nics.map((nic, at) => ({
      ...inspectNic(undefined, nic, devices),
      differences: at === 0 ? [text] : [],
    }));
    return { containerId, podUid, netns, isThere: true, nics: unread };
  }
}

function inspectSandbox(
  kernel: Kernel,
  plan: SandboxPlan,
  devices: readonly NicDevice[],
): InspectedNics["sandboxes"][number] {
  const { containerId, podUid, netns, nics } = plan;
  using ns = openIfThere(kernel, netns);
  using stack = ns === undefined ? undefined : kernel.openStack(ns);
  const surplus = stack === undefined ? [] : surplusRules(stack, nics, devices);
  return {
    containerId,
    podUid,
    netns,
    isThere: stack !== undefined,
    nics: nics.map((nic, at) => {
      const inspected = inspectNic(stack, nic, devices);
      return at === 0 ? { ...inspected, differences: [...inspected.differences, ...surplus] } : inspected;
    }),
  };
}

function inspectNic(stack: NetStack | undefined, nic: NicPlan, devices: readonly NicDevice[]): InspectedNic {
  const device = deviceOf(nic, devices);
  const { name, portId, mac, mtu, addresses, place } = nic;
  const common = {
    name,
    portId,
    kind: place.kind,
    addresses,
    ...(nic.pending === true ? { isPending: true } : {}),
    ...(mac === undefined ? {} : { mac }),
    ...(mtu === undefined ? {} : { mtu }),
  };
  const { isConfigured, devices: hostDevices, port, side } = device.explain(nic);
  const surplus = stack === undefined || side === undefined ? [] : surplusOf(stack, side);
  return {
    ...common,
    isConfigured,
    devices: hostDevices,
    ...(port === undefined ? {} : { port }),
    differences: stack === undefined ? [] : [...device.inspectSandbox(nic, stack), ...surplus],
    link: stack === undefined || side === undefined ? undefined : linkOf(stack, side),
  };
}

function linkOf(stack: NetStack, side: SandboxSide): InspectedNic["link"] {
  const link = stack.links.get({ name: side.name });
  if (link === undefined) return undefined;
  const addresses = stack.addresses.list({ linkIndex: link.index });
  const tables = new Set([MAIN_TABLE, ...side.rules.map(({ table }) => table)]);
  const own = new Set(addresses.map(({ address }) => String(Cidr.host(address))));
  return {
    isUp: link.up,
    ...(link.mac === undefined ? {} : { mac: String(link.mac) }),
    mtu: link.mtu,
    addresses: addresses.map(({ address, prefixLength }) => `${address}/${prefixLength}`),
    routes: routesOf(stack, link.index)
      .filter(({ table, type }) => tables.has(table) && type === "unicast")
      .map((route) => routeText(route, side.name)),
    rules: ([4, 6] as const).flatMap((family) =>
      rulesOf(stack, family)
        .filter((rule) => isOurRule(rule) && own.has(String(rule.from)))
        .map(ruleText),
    ),
  };
}

/** Addresses and routes that somebody has added to the interface of a NIC. */
function surplusOf(stack: NetStack, side: SandboxSide): string[] {
  const link = stack.links.get({ name: side.name });
  if (link === undefined) return [];
  // The machine makes further ones itself.
  const addresses = side.acceptRa
    ? []
    : stack.addresses
        .list({ linkIndex: link.index })
        .filter(({ address }) => !(address.family === 6 && address.isLinkLocal))
        .map(({ address, prefixLength }) => `${address}/${prefixLength}`)
        .filter((text) => !side.addresses.includes(text));
  const planned = new Set(side.routes.map(({ dst, via, table }) => `${dst} ${via ?? ""} ${table ?? MAIN_TABLE}`));
  const routes = routesOf(stack, link.index).filter(
    ({ dst, gateway, table, protocol }) =>
      SET_BY_HAND.has(protocol) && !planned.has(`${dst} ${gateway ?? ""} ${table}`),
  );
  return [
    ...addresses.map((text) => `${side.name} has the address ${text}, which its port does not have`),
    ...routes.map((route) => `${side.name} has the route ${routeText(route, side.name)}, which is of no subnet`),
  ];
}

/** Rules with our priorities and tables that no NIC of the sandbox has. */
function surplusRules(stack: NetStack, nics: readonly NicPlan[], devices: readonly NicDevice[]): string[] {
  const sides = nics.map((nic) => deviceOf(nic, devices).explain(nic).side ?? nic);
  const planned = new Set(
    sides.flatMap(({ rules }) => rules.map(({ from, table, priority }) => `${priority} ${from} ${table}`)),
  );
  return ([4, 6] as const).flatMap((family) =>
    rulesOf(stack, family)
      .filter((rule) => isOurRule(rule) && !planned.has(`${rule.priority} ${rule.from} ${rule.table}`))
      .map((rule) => `the sandbox has the rule ${ruleText(rule)} that no NIC needs`),
  );
}

function routesOf(stack: NetStack, linkIndex: number): readonly Route[] {
  return ([4, 6] as const).flatMap((family) => stack.routes.list({ family, linkIndex }));
}

function routeText({ dst, gateway, metric, table }: Route, link: string): string {
  return [
    dst.prefixLength === 0 ? (dst.family === 4 ? "default" : "default (IPv6)") : String(dst),
    ...(gateway === undefined ? [] : [`via ${gateway}`]),
    `dev ${link}`,
    ...(metric === undefined ? [] : [`metric ${metric}`]),
    ...(table === MAIN_TABLE ? [] : [`table ${table}`]),
  ].join(" ");
}

function ruleText({ priority, from, table }: Rule): string {
  return `${priority}: from ${from ?? "all"} lookup ${table}`;
}
