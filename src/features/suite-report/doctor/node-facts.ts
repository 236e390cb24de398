import type { Fact } from "#base/diagnosis";
import type { Rule } from "#kernel/rule";
import type { ForwardFinding } from "../forward-drops.ts";
import type { SuiteCommand } from "../programs.ts";
import type { NodeMarks } from "./mark-checks.ts";

/** A CNI configuration file of the node, in the order in which the runtime reads them. */
export interface CniFile {
  readonly file: string;
  /** The plugins that it names; a delegate of a plugin among them. */
  readonly plugins: readonly { readonly type: string; readonly socket: string | undefined }[];
  /** The reason why the runtime cannot use it. */
  readonly fault?: string;
}

/** The state of the source guard in the kernel. */
export interface GuardFacts {
  readonly tables: readonly string[];
  /** The first refused packets, one for each link and reason. */
  readonly refusals: readonly {
    readonly reason: string;
    readonly source: string;
    /** Name of the link by which it came in. */
    readonly link: string;
    /** Addresses of the pod at the link; empty for a link that is no pod's. */
    readonly pod: readonly string[];
  }[];
}

/** The verdict of one filter of packets to this node on the first packet to a TCP port. */
export interface InputFinding extends Pick<ForwardFinding, "filter" | "family" | "outcome" | "by" | "allow"> {
  readonly port: number;
}

/** A TCP port of a program of the suite that others must reach. */
export interface NeededPort {
  readonly program: string;
  readonly port: number;
  /** The clients that connect, and what fails without, as `load balancers ask for health there`. */
  readonly why: string;
}

/** A destination to which the common source ports of a router have run out (docs/spec/pod-network.md#9.3). */
export interface CrowdedRouter {
  /** The Egress, as `namespace/name`. */
  readonly egress: string;
  readonly destination: string;
  /** The clients with the most flows, with their numbers. */
  readonly clients: readonly string[];
}

/** The facts of this machine. A fact of a missing part is empty. */
export interface NodeFacts {
  /** Milliseconds since the epoch. */
  readonly now: number;
  readonly processes: readonly SuiteCommand[];
  readonly cniDir: string;
  readonly cni: Fact<readonly CniFile[]>;
  /** Folders of the node that the pod of this command does not mount: what they have is not known. */
  readonly notMounted: readonly string[];
  readonly cniBinDir: string;
  readonly executables: readonly { readonly path: string; readonly fault?: string | undefined }[];
  /** Sockets of daemons, and what became of a call. */
  readonly sockets: readonly { readonly program: string; readonly path: string; readonly fault?: string | undefined }[];
  readonly forwarding: { readonly ipv4: boolean; readonly ipv6: boolean | undefined };
  readonly rules: readonly Rule[];
  /** The numbers of a `coild` without flags. */
  readonly podDefaults: { readonly tableId: number; readonly rulePriority: number };
  /** The objects of others that systemd-networkd removes when it starts or reloads; `undefined` where it does not run. */
  readonly networkd: Fact<{ readonly rules: boolean; readonly routes: boolean }> | undefined;
  /** Objects of other proxies, each with the command that removes it. */
  readonly rivals: readonly string[];
  /** The ranges of Services in the tables of service-proxy, with what keeps the node from sending to them, if anything. */
  readonly serviceRanges: Fact<readonly { readonly range: string; readonly fault?: string | undefined }[]>;
  /** The sysctl net.ipv4.conf.all.route_localnet is on. */
  readonly routesLocalnet: boolean;
  /** `undefined` where no coild runs that makes links. */
  readonly forward: Fact<readonly ForwardFinding[]> | undefined;
  /** The verdicts of filters on packets to ports of {@link neededPorts}. */
  readonly input: Fact<readonly InputFinding[]>;
  /** The source guard; `undefined` where no coild runs that makes links. */
  readonly guard: Fact<GuardFacts> | undefined;
  readonly conntrack: { readonly count: number; readonly max: number } | undefined;
  /** Sources of tunnel packets to routers of Egresses that leave this node as another address, each with it. */
  readonly translated: Fact<readonly { readonly source: string; readonly leavesAs: string }[]>;
  /** The routers of Egresses on this machine, and their destinations without common source ports. */
  readonly sourcePorts: { readonly routers: number; readonly crowded: Fact<readonly CrowdedRouter[]> };
  readonly uplinks: readonly { readonly name: string; readonly mtu: number }[];
  readonly podLinks: readonly { readonly name: string; readonly mtu: number }[];
  /** Ports at which somebody else answers. */
  readonly ports: readonly { readonly program: string; readonly port: number; readonly fault?: string | undefined }[];
  /** The marks of programs by their estates; `undefined` where no program has one. */
  readonly marks: NodeMarks | undefined;
  readonly folders: readonly {
    readonly path: string;
    readonly isReadOnly: boolean;
    /** Shares from 0 to 1. */
    readonly freeSpace: number;
    readonly freeFiles: number;
  }[];
  /** Names of the features that the kernel lacks. */
  readonly lacking: readonly string[];
  readonly certificates: readonly { readonly program: string; readonly path: string; readonly pem: Fact<string> }[];
  /** Own time minus the server's, in milliseconds; `undefined` where nothing of the suite is here and no API server is given. */
  readonly clock: Fact<number> | undefined;
}
