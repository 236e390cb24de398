import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Kernel } from "#kernel/net";
import type { CniPluginSettings } from "#lab/kubelet";
import { type MechanismDriver, NeutronBed, type NeutronBedHost } from "#lab/neutron";
import type { LabNode, Topology } from "#lab/topology";
import { LabError } from "./errors.ts";
import type { LabPaths } from "./lab-paths.ts";

/** The number of nodes with a switch and Neutron's agent, one with each firewall driver. */
const HOSTS = 2;
const NAMESPACE = "vpc";
/** The flavor of the machines of the design document, and how many NICs they may have. */
const FLAVOR = { name: "m1.large", maxNics: 2 } as const;

/** The VPC of a lab as plain data. */
export interface LabVpc {
  /** Neutron's API, on the loopback address of the host process. */
  readonly neutron: string;
  /** The folder of Neutron's programs, by which `RunningNeutron` finds them. */
  readonly folder: string;
  /** Nodes whose pods can have NICs. */
  readonly hosts: readonly { readonly node: string; readonly firewall: NeutronBedHost["firewall"] | "ovn" }[];
  /** The Kubernetes namespace of the pods. */
  readonly namespace: string;
  readonly flavor: { readonly name: string; readonly maxNics: number };
  /** Seconds until Neutron and its agents ran. */
  readonly startSeconds: number;
}

/** Pure: the nodes of a lab with NICs. */
export function vpcHosts({ nodes }: Pick<Topology, "nodes">): readonly NeutronBedHost[] {
  return nodes.slice(0, HOSTS).map(({ name, netns }, at) => ({
    name,
    netns,
    firewall: at === 0 ? "openvswitch" : "iptables_hybrid",
  }));
}

/** Neutron on the lab's nodes. Rejects with `NeutronBedError`, `KernelError`, and the signal's reason. */
export async function openVpc(
  kernel: Kernel,
  {
    topology,
    paths,
    driver,
  }: { readonly topology: Topology; readonly paths: LabPaths; readonly driver: MechanismDriver },
  { signal }: { readonly signal: AbortSignal },
): Promise<{ readonly bed: NeutronBed; readonly vpc: LabVpc }> {
  const startedMs = performance.now();
  const address = topology.gateways.find(({ family }) => family === 4);
  if (address === undefined) throw new LabError("start-failed", "--vpc: Neutron's broker needs nodes with IPv4");
  const hosts = vpcHosts(topology).map((host) => ({ ...host, ovs: paths.ovsOf(host.name) }));
  const cloud = { netns: topology.fabric, address };
  // The lab's name tells the folders, so its removal finds them after a kill, too.
  const bed = await NeutronBed.open({ kernel }, { cloud, hosts, driver, folder: paths.neutron, signal });
  const endpoint = bed.innerUrl.href;
  const credentials = `clouds: {lab: {auth_type: none, auth: {endpoint: '${endpoint}'}}}\n`;
  writeFileSync(credentialsFile(paths), credentials, { mode: 0o600 });
  const vpc = {
    neutron: bed.api.url.href,
    folder: bed.folder,
    hosts: hosts.map(({ name: node, firewall }) => ({ node, firewall: driver === "ovn" ? driver : firewall })),
    namespace: NAMESPACE,
    flavor: FLAVOR,
    startSeconds: Number(((performance.now() - startedMs) / 1000).toFixed(1)),
  };
  return { bed, vpc };
}

/** A program of the VPC and its place, before it becomes a child. */
export interface VpcProgram {
  readonly program: "nic-controller" | "nic-agent";
  /** The node of an agent. */
  readonly node: string | undefined;
  readonly netns: string;
  readonly flags: readonly string[];
}

/** Pure: the controller beside Neutron, and an agent on each host. */
export function vpcPrograms(topology: Topology, paths: LabPaths, bed: Pick<NeutronBed, "ovs">): readonly VpcProgram[] {
  const controller = [
    `--credentials=${credentialsFile(paths)}`,
    `--cluster-id=${topology.lab}`,
    "--webhook-addr=none",
    // Other programs of the lab's fabric have ports too.
    "--metrics-addr=127.0.0.1:9406",
    "--health-addr=127.0.0.1:9407",
  ];
  return [
    { program: "nic-controller", node: undefined, netns: topology.fabric, flags: controller },
    ...vpcHosts(topology).map(({ name, netns }) => ({
      program: "nic-agent" as const,
      node: name,
      netns,
      flags: [
        `--socket=${vpcSocket(paths, name)}`,
        `--state-dir=${join(paths.dir, name, "nic-agent")}`,
        `--ovsdb=${bed.ovs(name).socketPath}`,
      ],
    })),
  ];
}

/** The socket of a node's `nic-agent`. */
export function vpcSocket(paths: LabPaths, node: string): string {
  return join(paths.dir, node, "vpc.sock");
}

/** The plugin of a node with NICs: pods without a VPC go on to `coil`. */
export function vpcPlugin(
  node: LabNode,
  { paths, coil, delegate }: { readonly paths: LabPaths; readonly coil: string; readonly delegate: object },
): CniPluginSettings {
  return {
    executable: join(coil, "../vpc-neutron"),
    config: {
      cniVersion: "1.0.0",
      name: "k8s-pod-network",
      type: "vpc-neutron",
      socket: vpcSocket(paths, node.name),
      capabilities: { "io.kubernetes.cri.pod-annotations": true },
      delegate,
    },
  };
}

function credentialsFile({ dir }: Pick<LabPaths, "dir">): string {
  return join(dir, "clouds.yaml");
}
