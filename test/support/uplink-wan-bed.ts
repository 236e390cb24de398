import { execFileSync } from "node:child_process";
import { Cidr, IpAddress } from "#base/ip";
import { type Kernel, type NetNs, type NetStack, openKernel } from "#kernel/net";
import { SERVER4, SERVER6, Wan } from "./uplink-wan.ts";

export { TestDns, type Zone } from "./uplink-dns-server.ts";
export { type Fault, SERVER4, SERVER6, Wan } from "./uplink-wan.ts";

/** One of the node's two uplinks. */
export interface BedUplink {
  readonly ifName: string;
  readonly address4: IpAddress;
  readonly address6: IpAddress;
  readonly metric: number;
  readonly wan: Wan;
}

export interface BedOptions {
  /** A bridge `cni0` with a pod behind it. Default false. */
  readonly pod?: boolean;
}

const DEFAULT = [Cidr.parse("0.0.0.0/0"), Cidr.parse("::/0")] as const;
const POD = { bridge4: "10.42.0.1", bridge6: "fd00:10:42::1", pod4: "10.42.0.2", pod6: "fd00:10:42::2" } as const;
const PLACES = [
  { net4: "192.0.2", net6: "2001:db8:1::", metric: 5000 },
  { net4: "198.51.100", net6: "2001:db8:2::", metric: 5001 },
] as const;
let serial = 0;

/**
 * The test bed of docs/spec/uplink-proxy.md#15.2: a node with `eth0` and `eth1`, each to a WAN of its own that has gateway, DNS server and
 * the internet's server; with `pod` also a bridge and a pod. Both families, no duplicate address detection. Disposing removes all of it;
 * the servers run in the process that made it.
 *
 * ```ts
 * await using bed = await Bed.create({ pod: true });
 * bed.wan0.serveWeb(pair);
 * bed.wan0.break("swallow");
 * bed.run("curl", "--interface", "198.51.100.10", "http://203.0.113.80/"); // inside the node
 * ```
 */
export class Bed implements AsyncDisposable {
  readonly kernel: Kernel;
  readonly netns: NetNs;
  /** The stack of the node. */
  readonly stack: NetStack;
  readonly uplinks: readonly [BedUplink, BedUplink];
  readonly pod: NetNs | undefined;
  readonly #names: readonly string[];

  private constructor(init: {
    readonly kernel: Kernel;
    readonly netns: NetNs;
    readonly stack: NetStack;
    readonly uplinks: readonly [BedUplink, BedUplink];
    readonly pod: NetNs | undefined;
    readonly names: readonly string[];
  }) {
    this.kernel = init.kernel;
    this.netns = init.netns;
    this.stack = init.stack;
    this.uplinks = init.uplinks;
    this.pod = init.pod;
    this.#names = init.names;
  }

  static async create(options: BedOptions = {}): Promise<Bed> {
    const kernel = openKernel();
    serial += 1;
    const names: string[] = [];
    const make = (role: string): NetNs => {
      const name = `isthmus-up-${process.pid}-${serial}-${role}`;
      const netns = kernel.createNetNs(name);
      names.push(name);
      using inside = kernel.openStack(netns);
      // Link-local addresses come with the links: without this setting they cannot be used for up to two seconds.
      for (const which of ["all", "default"]) inside.sysctl.set(`net.ipv6.conf.${which}.accept_dad`, 0);
      return netns;
    };
    const netns = make("node");
    const stack = kernel.openStack(netns);
    stack.links.set(1, { up: true });
    const connect = (at: 0 | 1): BedUplink => connectWan({ kernel, stack, netns: make(`wan${at}`), at });
    const uplinks = [connect(0), connect(1)] as const;
    const pod = options.pod === true ? make("pod") : undefined;
    if (pod !== undefined) connectPod(kernel, stack, pod);
    return new Bed({ kernel, netns, stack, uplinks, pod, names });
  }

  get wan0(): Wan {
    return this.uplinks[0].wan;
  }

  get wan1(): Wan {
    return this.uplinks[1].wan;
  }

  /** The name of the node in `ip netns`. */
  get nodeName(): string {
    return this.#names[0] ?? "";
  }

  /** The arguments for `spawn(...)` that run a command in the node. Mounts stay as they are. */
  inside(command: string, ...args: readonly string[]): readonly [string, readonly string[]] {
    return ["nsenter", [`--net=${this.netns.path}`, "--", command, ...args]];
  }

  /**
   * Runs a command in the node to its end, and returns its output; throws if it fails. This process is blocked meanwhile: commands that use
   * the bed's own servers need `spawn`.
   */
  run(command: string, ...args: readonly string[]): string {
    const [file, all] = this.inside(command, ...args);
    // The command's stderr becomes part of the error.
    return execFileSync(file, all, { encoding: "utf8", timeout: 30_000, stdio: ["ignore", "pipe", "pipe"] });
  }

  /**
   * Packets of TCP over the first uplink that are larger than this are dropped, both ways, and nobody says so. Each is dropped by its receiver:
   * the kernel that sends would see a drop of its own.
   */
  narrow(mtuBytes: number): void {
    const rule = (ifName: string): string =>
      `table inet narrow\ndelete table inet narrow\ntable inet narrow {\n chain in {\n type filter hook prerouting priority -400;\n` +
      ` iifname ${ifName} meta l4proto tcp meta length > ${mtuBytes} drop\n }\n}\n`;
    const sides = [
      { netns: this.netns, ifName: "eth0" },
      { netns: this.wan0.netns, ifName: "up" },
    ];
    for (const { netns, ifName } of sides) {
      const inside = (words: readonly string[], input = ""): unknown =>
        execFileSync("nsenter", [`--net=${netns.path}`, "--", ...words], { input, timeout: 30_000 });
      // Else several segments come as one packet.
      inside(["ip", "link", "set", "dev", ifName, "gso_max_segs", "1"]);
      inside(["nft", "-f", "-"], rule(ifName));
    }
  }

  /** The settings of both uplinks, as the configuration file has them: names as the interfaces, costs 0 and 1, `static`. */
  get uplinkEntries(): readonly Readonly<Record<string, unknown>>[] {
    return this.uplinks.map(({ ifName, address4, address6, wan }, cost) => ({
      name: ifName,
      interface: ifName,
      cost,
      mode: "static",
      addresses: [`${address4}/24`, `${address6}/64`],
      gateway4: String(wan.addresses.gateway4),
      gateway6: String(wan.addresses.gateway6),
      dnsServers: [String(wan.addresses.dns4), String(wan.addresses.dns6)],
    }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { wan } of this.uplinks) await wan[Symbol.asyncDispose]();
    this.stack[Symbol.dispose]();
    this.netns[Symbol.dispose]();
    this.pod?.[Symbol.dispose]();
    for (const { wan } of this.uplinks) wan.netns[Symbol.dispose]();
    for (const name of this.#names) this.kernel.deleteNetNs(name);
  }
}

function connectWan(init: {
  readonly kernel: Kernel;
  readonly stack: NetStack;
  readonly netns: NetNs;
  readonly at: 0 | 1;
}): BedUplink {
  const { kernel, stack, netns, at } = init;
  const { net4, net6, metric } = PLACES[at];
  const ifName = `eth${at}`;
  const link = stack.links.create({ kind: "veth", name: ifName, up: true, peer: { name: "up", netns, up: true } });
  const [address4, address6] = [IpAddress.parse(`${net4}.10`), IpAddress.parse(`${net6}10`)];
  assign(stack, link.index, [address4, 24], [address6, 64]);
  const addresses = {
    gateway4: IpAddress.parse(`${net4}.1`),
    gateway6: IpAddress.parse(`${net6}1`),
    dns4: IpAddress.parse(`${net4}.53`),
    dns6: IpAddress.parse(`${net6}53`),
  };
  using inside = kernel.openStack(netns);
  inside.links.set(1, { up: true });
  const up = inside.links.get({ name: "up" })?.index ?? 0;
  assign(inside, up, [addresses.gateway4, 24], [addresses.gateway6, 64], [addresses.dns4, 24], [addresses.dns6, 64]);
  assign(inside, 1, [SERVER4, 32], [SERVER6, 128]);
  stack.routes.add({ dst: DEFAULT[0], gateway: addresses.gateway4, metric });
  stack.routes.add({ dst: DEFAULT[1], gateway: addresses.gateway6, metric });
  const zone = {
    "registry.example": [String(SERVER4), String(SERVER6)],
    "v4.example": [String(SERVER4)],
    "v6.example": [String(SERVER6)],
    // Each WAN has its own server at this address.
    "split.example": [String(addresses.gateway4), String(addresses.gateway6)],
  };
  const wan = new Wan(kernel, { name: `wan${at}`, netns, addresses, zone });
  return { ifName, address4, address6, metric, wan };
}

function connectPod(kernel: Kernel, stack: NetStack, pod: NetNs): void {
  const bridge = stack.links.create({ kind: "bridge", name: "cni0", up: true });
  assign(stack, bridge.index, [IpAddress.parse(POD.bridge4), 24], [IpAddress.parse(POD.bridge6), 64]);
  stack.links.create({
    kind: "veth",
    name: "veth-pod",
    up: true,
    masterIndex: bridge.index,
    peer: { name: "eth0", netns: pod, up: true },
  });
  using inside = kernel.openStack(pod);
  inside.links.set(1, { up: true });
  const eth0 = inside.links.get({ name: "eth0" })?.index ?? 0;
  assign(inside, eth0, [IpAddress.parse(POD.pod4), 24], [IpAddress.parse(POD.pod6), 64]);
  inside.routes.add({ dst: DEFAULT[0], gateway: IpAddress.parse(POD.bridge4) });
  inside.routes.add({ dst: DEFAULT[1], gateway: IpAddress.parse(POD.bridge6) });
}

function assign(stack: NetStack, linkIndex: number, ...all: readonly (readonly [IpAddress, number])[]): void {
  for (const [address, prefixLength] of all) {
    stack.addresses.add({ linkIndex, address, prefixLength, noDad: address.family === 6 });
  }
}
