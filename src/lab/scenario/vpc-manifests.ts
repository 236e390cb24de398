/** The objects that the pods of the design document name: a network, a subnet in it, an address, a port that a user made, and a security group. */
export interface VpcNames {
  readonly vpc: string;
  readonly subnet: string;
  readonly ip: string;
  /** Id of the port, which `pod4` and `pod5` both ask for. */
  readonly portId: string;
  /** Id of the group of `pod5`. */
  readonly securityGroup: string;
}

/** The names of {@link arktosPods}. */
export const ARKTOS_PODS = ["pod1", "pod2", "pod3", "pod4", "pod5"] as const;

/**
 * Pure: the five pods of "NIC and VPC Support in Arktos", as Arktos' API server takes them, with ids of this cloud. `pod3` and `pod5` ask for
 * one address, `pod4` and `pod5` for one port.
 */
export function arktosPods({ vpc, subnet, ip, portId, securityGroup }: VpcNames): string {
  const container = "  containers:\n  - name: nginx\n    image: nginx\n    ports:\n      - containerPort: 443\n";
  const machine = `name: nginx
    image: www.foo.com/vmimages/nginx
    flavor: m1.large
    ports:
      - VMPort: 443
`;
  const specs = [
    `${container}  vpc: ${vpc}\n`,
    `${container}  vpc: ${vpc}\n  nics:\n    - subnet: ${subnet}\n`,
    `${container}  vpc: ${vpc}\n  nics:\n    - subnet: ${subnet}\n      ip: ${ip}\n`,
    `  VirtualMachine:\n    ${machine}  vpc: ${vpc}\n  nics:\n    - portID: ${portId}\n`,
    `  VMs:\n  - ${machine}  vpc: ${vpc}
  nics:
      - subnet: ${subnet}
        ip: ${ip}
        securityGroup: ${securityGroup}
      - portID: ${portId}
`,
  ];
  return specs
    .map((spec, at) => `apiVersion: v1\nkind: Pod\nmetadata:\n  name: ${ARKTOS_PODS[at]}\nspec:\n${spec}`)
    .join("---\n");
}
