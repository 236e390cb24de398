import type { IpFamily } from "#base/ip";
import type { AddressKey } from "#kernel/address";
import type { Route } from "#kernel/route";
import type { Rule } from "#kernel/rule";

/**
 * - `pod`: the host's end of a pod's link.
 * - `half-made`: a link of an ADD that did not end.
 * - `chained`: the link of another plugin, of which only the alias is ours.
 * - `bind`: the interface with the bind addresses of the tunnel.
 * - `nic`: a device of a pod's NIC of a VPC.
 */
export type LinkRole = "pod" | "half-made" | "chained" | "bind" | "nic";

/**
 * - `configuration`: the CNI configuration that names our plugin.
 * - `set-aside`: a configuration of others that the installer renamed.
 * - `executable`: a CNI executable of ours.
 * - `foreign-executable`: `coil` of somebody else.
 * - `socket`, `lock`, `record`, `state`: files and folders of our programs.
 * - `estate`: the folders with the estates of our programs, which say what is left of them.
 */
export type FileRole =
  | "configuration"
  | "set-aside"
  | "executable"
  | "foreign-executable"
  | "socket"
  | "lock"
  | "record"
  | "state"
  | "estate";

/** A file or folder that is there. */
export interface OwnFile {
  readonly path: string;
  readonly role: FileRole;
}

/** The objects of the suite on a node, read once. */
export interface NodeFacts {
  /** Programs of the suite that run on the node, as `coild (process 12)`. */
  readonly running: readonly string[];
  readonly links: readonly {
    readonly index: number;
    readonly name: string;
    readonly alias: string;
    readonly role: LinkRole;
  }[];
  /** Containers with NICs of VPCs by `nic-agent`'s journal; a device that Alcor's agent has made is in the sandbox alone. */
  readonly sandboxes: readonly {
    readonly containerId: string;
    readonly nics: readonly string[];
    /** The sandbox has ended, as in a loss of power, and no runtime has called DEL while `nic-agent` ran. */
    readonly isGone: boolean;
  }[];
  /** The reasons why files of the journal cannot be read, one line each. */
  readonly journalFaults: readonly string[];
  /** Pods with tunnels to Egresses, or with destinations that are closed, in their own namespaces. */
  readonly clients: readonly {
    readonly path: string;
    readonly inode: bigint;
    readonly ifname: string;
    /** The pod in words, as its mark names it. */
    readonly who: string;
    /** Destinations that go to an Egress, or nowhere. */
    readonly destinations: readonly string[];
    /** True: its link is removed too, so nothing leaves it. */
    readonly isCutOff: boolean;
  }[];
  /** Rules and routes of `coild` and `coil-router`, by their marks. */
  readonly rules: readonly Rule[];
  readonly routes: readonly { readonly route: Route; readonly program: "coild" | "coil-router" }[];
  /** Rules and routes that look like those of a program with other numbers, one line each. */
  readonly otherNumbers: readonly string[];
  /** The chains of iptables with rules by which packets of pods pass, as `iptables-nft FORWARD`. */
  readonly forward: readonly string[];
  /** The reason why these cannot be listed, such as a missing program of iptables. */
  readonly forwardFault: string | undefined;
  /** Families of the tables of the source guard. */
  readonly guard: readonly string[];
  /** Tables of `service-proxy`. */
  readonly services: readonly { readonly family: IpFamily; readonly table: string }[];
  /** The kernel objects of `uplink-proxy`, one line each. */
  readonly uplinks: readonly string[];
  readonly files: readonly OwnFile[];
  /** Paths that programs had outside of their own folders, one line each. */
  readonly outside: readonly string[];
  /** The reasons why it is not known if all is found, one line each. */
  readonly unsure: readonly string[];
  /** Addresses of the tunnel that somebody put on a link by hand, as `10.255.255.1/32 on lo`. */
  readonly bindAddresses: readonly string[];
  /** Addresses on `lo` that `proxy-agent` has added by its estate, with the properties that it gives them. */
  readonly loopback: readonly AddressKey[];
  /** Settings that `coild` changed, with the value before. */
  readonly settings: readonly { readonly key: string; readonly former: string; readonly now: string }[];
}

/** One removal: what is done, as `delete link veth1`, and how one sees that it is ours. */
export type NodeRemoval = { readonly what: string; readonly why: string } & (
  | { readonly op: "unplug"; readonly containerId: string }
  | { readonly op: "remove-client"; readonly client: NodeFacts["clients"][number] }
  /** `isLast`: only if every removal before it has succeeded. */
  | { readonly op: "remove-file"; readonly path: string; readonly isLast?: boolean }
  | { readonly op: "restore-file"; readonly path: string; readonly to: string }
  | { readonly op: "delete-link"; readonly index: number }
  | { readonly op: "clear-alias"; readonly index: number }
  | { readonly op: "delete-address"; readonly address: AddressKey }
  | { readonly op: "delete-rule"; readonly rule: Rule }
  | { readonly op: "delete-route"; readonly route: Route }
  | { readonly op: "delete-guard" }
  | { readonly op: "delete-forward" }
  | { readonly op: "delete-services"; readonly family: IpFamily; readonly table: string }
  | { readonly op: "flush-uplinks" }
  | { readonly op: "set"; readonly key: string; readonly value: string }
);

/** The removals of a node, in their order. */
export interface NodePlan {
  readonly removals: readonly NodeRemoval[];
  /** The reasons why nothing is removed now, one line each; empty: the plan can be applied. */
  readonly refused: readonly string[];
  /** The objects that stay, each with the reason. */
  readonly kept: readonly string[];
  /** The changes for pods that run on, one line each. They are printed before anything is removed. */
  readonly warned: readonly string[];
  /** The objects that are left although every removal is made, each with its remedy, one line each. */
  readonly unfinished: readonly string[];
  /** The reasons why something may be left that no listing shows, one line each. */
  readonly unsure: readonly string[];
}

/** The suffix that `coil-installer` gives to the configurations of others. */
const SET_ASIDE = ".coil-disabled";
const WHY_LINK: Readonly<Record<LinkRole, string>> = {
  pod: "link of a pod, by its alias",
  "half-made": "link of an ADD that did not end, by its alias",
  chained: "coil's mark on the link of another plugin, which stays",
  bind: "bind interface of proxy-agent, by its alias",
  nic: "device of a NIC, by its alias",
};
const WHY_FILE: Readonly<Record<FileRole, string>> = {
  configuration: "it names the plugin coil or a plugin of VPCs",
  "set-aside": "coil-installer put it aside",
  executable: "CNI executable of this suite",
  "foreign-executable": "",
  socket: "socket of a program that has ended",
  lock: "lock of a program that has ended",
  record: "record of a program that has ended",
  state: "state of a program that has ended",
  estate: "state and estates of programs that have ended",
};

/** The choices of the caller. */
interface NodeOptions {
  /** Pods' links are deleted, whether their pods run or not. */
  readonly pods: boolean;
  /** Settings get the value that they had before the first `coild` since the boot. */
  readonly restoreSettings: boolean;
}

/**
 * Pure: the removals of a node. NICs of sandboxes that are gone come first, because their records are in a folder that goes; then the configuration, so
 * that no new pod gets a link; then the kernel's objects; the record of former settings comes after these, and estates last. It is refused while programs of the suite run, with NICs of pods, and with pods' links unless `pods`.
 */
export function planNode(facts: NodeFacts, options: NodeOptions): NodePlan {
  const sandboxes = facts.sandboxes.filter((one) => one.nics.length > 0);
  const changed = facts.settings.filter(({ former, now }) => former !== now);
  return {
    removals: [
      ...sandboxes.filter(({ isGone }) => isGone).map(unplug),
      ...filesOf(facts, "configuration").map(removeFile),
      ...filesOf(facts, "set-aside").map(restoreFile),
      ...filesOf(facts, "executable").map(removeFile),
      ...podRemovals(facts),
      ...tableRemovals(facts),
      ...(options.restoreSettings ? changed : []).map(restoreSetting),
      ...filesOf(facts, "socket", "lock", "record", "state").map(removeFile),
      // Until then the next run knows what is left.
      ...filesOf(facts, "estate").map((file): NodeRemoval => ({ ...removeFile(file), isLast: true })),
    ],
    warned: facts.clients
      .filter(({ isCutOff }) => !isCutOff)
      .map(
        ({ who, path, destinations }) =>
          `${who} (${path}) will send packets to ${cut(destinations)} with its own address, and not through its Egress`,
      ),
    refused: refusals(
      facts,
      sandboxes.filter(({ isGone }) => !isGone),
      options,
    ),
    unfinished: [...facts.otherNumbers, ...facts.outside],
    unsure: facts.unsure,
    kept: [...keptObjects(facts), ...(options.restoreSettings ? [] : changed).map(keptSetting)],
  };
}

function filesOf({ files }: Pick<NodeFacts, "files">, ...roles: readonly FileRole[]): readonly OwnFile[] {
  return files.filter(({ role }) => roles.includes(role));
}

function linksOf({ links }: Pick<NodeFacts, "links">, ...roles: readonly LinkRole[]): NodeFacts["links"] {
  return links.filter(({ role }) => roles.includes(role));
}

/** Pure: what pods and the tunnel have in the kernel. Clients go while their links are there: a namespace is found by them. */
function podRemovals(facts: NodeFacts): readonly NodeRemoval[] {
  return [
    ...facts.clients.map(removeClient),
    ...linksOf(facts, "half-made", "pod", "bind").map(deleteLink),
    ...linksOf(facts, "chained").map(
      ({ index, name, role }): NodeRemoval => ({
        op: "clear-alias",
        index,
        what: `clear the alias of ${name}`,
        why: WHY_LINK[role],
      }),
    ),
    ...facts.loopback.map(deleteAddress),
    ...facts.rules.map(deleteRule),
    ...facts.routes.map(deleteRoute),
  ];
}

/** Pure: tables and rules of packet filters, and the uplinks. They go after the pods' links, which are guarded until then. */
function tableRemovals({ guard, forward, services, uplinks }: NodeFacts): readonly NodeRemoval[] {
  const removals: NodeRemoval[] = services.map(({ family, table }) => {
    const what = `delete nftables table ${family === 4 ? "ip" : "ip6"} ${table}`;
    const why = "Services by service-proxy, by the chain that names its layout";
    return { op: "delete-services", family, table, what, why };
  });
  if (forward.length > 0) {
    const what = `delete rules of ${forward.join(" and ")}`;
    removals.unshift({ op: "delete-forward", what, why: "coild's, by their comments" });
  }
  if (guard.length > 0) {
    const what = `delete nftables tables ${guard.map((family) => `${family} source-guard`).join(" and ")}`;
    removals.unshift({ op: "delete-guard", what, why: "the source guard by coild, by the chain that seals its rules" });
  }
  if (uplinks.length > 0) {
    const what = `delete ${uplinks.join("; ")}`;
    removals.push({ op: "flush-uplinks", what, why: "uplink-proxy's, by its protocol and tables" });
  }
  return removals;
}

/** Pure: the reasons why nothing is removed now. `inUse`: sandboxes with NICs that are not gone. */
function refusals(facts: NodeFacts, inUse: NodeFacts["sandboxes"], { pods: mayCut }: NodeOptions): readonly string[] {
  const pods = linksOf(facts, "pod", "half-made");
  const nics = linksOf(facts, "nic");
  const refused = facts.running.map((program) => `${program} runs on this node: end it first`);
  if (pods.length > 0 && !mayCut)
    refused.push(
      `${pods.length} pods have links of this suite (${cut(pods.map(({ name }) => name))}): delete the pods, or cut them off with --pods`,
    );
  if (nics.length > 0)
    refused.push(
      `pods have ${nics.length} devices of NICs (${cut(nics.map(({ name }) => name))}): delete these pods while nic-agent runs, which unplugs their ports`,
    );
  if (inUse.length > 0) {
    const containers = inUse.map((one) => `${one.containerId}: ${one.nics.join(", ")}`);
    refused.push(
      `containers have NICs of VPCs (${cut(containers, "; ")}): delete their pods while nic-agent runs, which unplugs their ports`,
    );
  }
  return [...refused, ...facts.journalFaults.map((fault) => `a container may have NICs of VPCs: ${fault}`)];
}

function keptObjects(facts: NodeFacts): readonly string[] {
  const { forwardFault, bindAddresses } = facts;
  return [
    ...filesOf(facts, "foreign-executable").map(({ path }) => `${path}: it is not the launcher of this suite`),
    ...(forwardFault === undefined ? [] : [`rules of iptables for packets of pods, if there are any: ${forwardFault}`]),
    ...bindAddresses.map(
      (text) =>
        `address ${text}: proxy-agent has not made it; where it is the tunnel's bind address, put there by hand: ip address delete ${text.replace(" on ", " dev ")}`,
    ),
  ];
}

function keptSetting({ key, former, now }: NodeFacts["settings"][number]): string {
  return `setting ${dotted(key)} = ${now}: before coild it was ${former}, but others may need it by now (--restore-settings)`;
}

function restoreSetting({ key, former, now }: NodeFacts["settings"][number]): NodeRemoval {
  const what = `set ${dotted(key)} from ${now} back to ${former}`;
  return { op: "set", key, value: former, what, why: "coild changed it, and recorded the value before" };
}

function unplug({ containerId, nics }: NodeFacts["sandboxes"][number]): NodeRemoval {
  const what = `remove NICs ${nics.join(", ")} of container ${containerId}`;
  return { op: "unplug", containerId, what, why: "nic-agent's, by its journal; the sandbox is gone" };
}

function removeClient(client: NodeFacts["clients"][number]): NodeRemoval {
  const { who, path, destinations } = client;
  const what = `remove tunnels, rules and routes to ${destinations.length} destinations of Egresses from ${who} (${path})`;
  return { op: "remove-client", client, what, why: "coild's, by the protocol and metric of its routes" };
}

function removeFile({ path, role }: OwnFile): Extract<NodeRemoval, { readonly op: "remove-file" }> {
  return { op: "remove-file", path, what: `remove ${path}`, why: WHY_FILE[role] };
}

function restoreFile({ path, role }: OwnFile): NodeRemoval {
  const to = path.slice(0, -SET_ASIDE.length);
  return { op: "restore-file", path, to, what: `rename ${path} back to ${to}`, why: WHY_FILE[role] };
}

function deleteLink({ index, name, alias, role }: NodeFacts["links"][number]): NodeRemoval {
  return { op: "delete-link", index, what: `delete link ${name}`, why: `${WHY_LINK[role]} ${alias}` };
}

function deleteAddress(address: AddressKey): NodeRemoval {
  const what = `delete address ${address.address}/${address.prefixLength} of lo`;
  return { op: "delete-address", address, what, why: "proxy-agent's, by its estate and the address's scope" };
}

function deleteRule(rule: Rule): NodeRemoval {
  const what = `delete IPv${rule.family} rule ${rule.priority}: lookup ${rule.table}`;
  return { op: "delete-rule", rule, what, why: "coild's, by its priority and table" };
}

function deleteRoute({ route, program }: NodeFacts["routes"][number]): NodeRemoval {
  const what = `delete route ${route.dst} of table ${route.table}`;
  return { op: "delete-route", route, what, why: `${program}'s, by protocol ${route.protocol}` };
}

function dotted(key: string): string {
  return key.replaceAll("/", ".");
}

function cut(names: readonly string[], separator = ", "): string {
  return names.length <= 3 ? names.join(separator) : `${names.slice(0, 3).join(separator)}${separator}...`;
}
