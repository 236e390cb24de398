import { runPath } from "#base/file";
import { MacAddress } from "#base/ip";
import { KernelError } from "#kernel/errors";
import type { LinkKind } from "#kernel/link";
import type { Kernel, NetStack } from "#kernel/net";
import { NETNS_DIR, type NetNs, type NetNsRef } from "#kernel/netns";
import { FakeAddressPort } from "./addresses.ts";
import { bringUp } from "./addressing.ts";
import type { FakeContext } from "./context.ts";
import { dumpNamespace } from "./dump.ts";
import { type Fault, Faults, refuse } from "./faults.ts";
import { addLoopback, FakeLinkPort, removeLink } from "./links.ts";
import { FakeNamespace } from "./namespace.ts";
import { FakeFouPort, FakeNeighbourPort, FakeNetnsIdPort, FakeOffloadPort } from "./others.ts";
import { FakeRoutePort } from "./routes.ts";
import { FakeRulePort } from "./rules.ts";
import { FakeSysctlPort } from "./sysctl.ts";

/** The first inode number; real namespaces start with this number too, so that logs look the same. */
const FIRST_INODE = 4026532000n;

export interface FakeKernelOptions {
  /** Link kinds and features that this kernel does not have. Default: it has all. */
  readonly lacks?: Iterable<LinkKind | "fou" | "fou6" | "encap">;
}

/**
 * A kernel in memory: namespaces, links with veth pairs across them, addresses, routes, rules, neighbours. Refuses the same requests as the
 * kernel, with the same codes. Nothing is forwarded.
 */
export class FakeKernel implements Kernel {
  readonly #faults = new Faults();
  readonly #lacks: ReadonlySet<LinkKind | "fou" | "fou6" | "encap">;
  readonly #names = new Map<string, FakeNamespace>();
  readonly #paths = new Map<string, FakeNamespace>();
  /** The namespaces by inode. */
  readonly #alive = new Map<bigint, FakeNamespace>();
  readonly #own: FakeNamespace;
  #inodes = FIRST_INODE;
  #macs = 0;

  constructor(options: FakeKernelOptions = {}) {
    this.#lacks = new Set(options.lacks);
    this.#own = this.#newNamespace();
    this.#own.references = 1;
    for (const link of this.#own.links.values()) bringUp(this.#own, link);
  }

  /** Makes an operation fail from now on: `fail("routes.add", "unreachable")` once, `{ times: Infinity }` always. */
  fail(operation: string, code: Fault["code"], options: Omit<Fault, "operation" | "code"> = {}): void {
    this.#faults.add({ operation, code, ...options });
  }

  /** Forgets all faults. */
  heal(): void {
    this.#faults.clear();
  }

  /** Ends duplicate address detection with success for every address that waits for it. */
  finishDad(): void {
    for (const ns of new Set([this.#own, ...this.#names.values(), ...this.#paths.values()])) {
      ns.addresses = ns.addresses.map((own) => (own.tentative ? { ...own, tentative: false } : own));
    }
  }

  /** The state of a namespace as sorted text. */
  dump(ref: NetNsRef): string {
    return dumpNamespace(this.#find(ref));
  }

  /** Makes a namespace reachable by another path too, as a container runtime does (`/proc/1234/ns/net`). */
  bindPath(path: string, ns: NetNs): void {
    const target = this.#resolve(ns);
    target.references += 1;
    this.#paths.set(path, target);
  }

  openStack(netns: NetNs): NetStack {
    this.#faults.check("openStack", `open the stack of ${netns.path ?? netns.inode}`);
    const ns = this.#resolve(netns);
    const context: FakeContext = {
      faults: this.#faults,
      lacks: this.#lacks,
      resolve: (handle) => this.#resolve(handle),
      nextMac: () => this.#nextMac(),
    };
    const release = this.#hold(ns);
    return {
      links: new FakeLinkPort(context, ns),
      addresses: new FakeAddressPort(context, ns),
      neighbours: new FakeNeighbourPort(context, ns),
      routes: new FakeRoutePort(context, ns),
      rules: new FakeRulePort(context, ns),
      fou: new FakeFouPort(context, ns),
      sysctl: new FakeSysctlPort(context, ns),
      offloads: new FakeOffloadPort(context, ns),
      netnsIds: new FakeNetnsIdPort(context, ns),
      [Symbol.dispose]: release,
    };
  }

  openNetNs(ref: NetNsRef): NetNs {
    this.#faults.check("openNetNs", `open network namespace ${JSON.stringify(ref)}`);
    return this.#handle(this.#find(ref), ref);
  }

  createNetNs(name: string): NetNs {
    const what = `create network namespace ${name}`;
    if (!/^[^/\0]{1,255}$/.test(name) || name === "." || name === "..") throw refuse("EINVAL", what);
    this.#faults.check("createNetNs", what);
    if (this.#names.has(name)) throw refuse("EEXIST", what);
    const ns = this.#newNamespace();
    this.#names.set(name, ns);
    return this.#handle(ns, { name });
  }

  createAnonymousNetNs(): NetNs {
    this.#faults.check("createAnonymousNetNs", "create a network namespace");
    return this.#handle(this.#newNamespace(), "own");
  }

  deleteNetNs(name: string): void {
    const what = `delete network namespace ${name}`;
    this.#faults.check("deleteNetNs", what);
    const ns = this.#names.get(name);
    if (ns === undefined) throw refuse("ENOENT", what);
    this.#names.delete(name);
    this.#reap(ns);
  }

  listNetNs(): string[] {
    return [...this.#names.keys()].sort();
  }

  #find(ref: NetNsRef): FakeNamespace {
    if (ref === "own") return this.#own;
    const path = pathOf(ref);
    const name = path.startsWith(`${NETNS_DIR}/`) ? path.slice(NETNS_DIR.length + 1) : undefined;
    const found = this.#paths.get(path) ?? (name === undefined ? undefined : this.#names.get(name));
    if (found === undefined) throw refuse("ENOENT", `open ${path}`);
    return found;
  }

  #handle(ns: FakeNamespace, ref: NetNsRef): NetNs {
    const path = ref === "own" ? undefined : pathOf(ref);
    return { fd: -1, ...(path === undefined ? {} : { path }), inode: ns.inode, [Symbol.dispose]: this.#hold(ns) };
  }

  #hold(ns: FakeNamespace): () => void {
    ns.references += 1;
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      ns.references -= 1;
      this.#reap(ns);
    };
  }

  /** Removes a namespace, and its links, if nothing holds it any more. */
  #reap(ns: FakeNamespace): void {
    if (ns.references > 0 || [...this.#names.values()].includes(ns)) return;
    for (const link of [...ns.links.values()]) removeLink(link);
    this.#alive.delete(ns.inode);
  }

  #resolve(ns: NetNs): FakeNamespace {
    const found = this.#alive.get(ns.inode);
    if (found === undefined || ns.fd !== -1) {
      throw new KernelError("invalid", `Namespace ${ns.path ?? ns.inode} is not one of this fake kernel, or has ended`);
    }
    return found;
  }

  #newNamespace(): FakeNamespace {
    this.#inodes += 1n;
    const ns = new FakeNamespace(this.#inodes);
    this.#alive.set(ns.inode, ns);
    addLoopback(ns);
    return ns;
  }

  #nextMac(): MacAddress {
    this.#macs += 1;
    return MacAddress.fromBytes(
      Uint8Array.of(2, 0, 0, (this.#macs >> 16) & 255, (this.#macs >> 8) & 255, this.#macs & 255),
    );
  }
}

function pathOf(ref: Exclude<NetNsRef, "own">): string {
  if ("name" in ref) return `${NETNS_DIR}/${ref.name}`;
  return "path" in ref ? runPath(ref.path) : `/proc/${ref.pid}/ns/net`;
}
