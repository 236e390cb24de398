import { array, boolean, int32, listMap, map, object, oneOf, opaque, string } from "#kube/crd";
import { MAX_NICS, MAX_SECURITY_GROUPS } from "./keys.ts";

/** The phases of a NicClaim (docs/spec/vpc-nics.md#5.2). */
export const CLAIM_PHASES = [
  "Pending",
  "Creating",
  "Created",
  "Binding",
  "Plumbable",
  "Active",
  "Failed",
  "Releasing",
] as const;

/** The states of a NIC; those of Arktos. `Ready`: the provider has told that the port is active. */
export const NIC_STATES = ["Unknown", "InProgress", "Ready", "Failed"] as const;

const time = (description: string) => string({ description, format: "date-time" });
/** The names of hosts and objects of providers have at most 255 characters. */
const name = (description: string) => string({ description, maxLength: 255 });

/** One NIC of a pod, with a name (docs/spec/vpc-nics.md#1). */
export const nicSchema = object(
  {
    name: string({ description: "The name of the interface in the sandbox.", maxLength: 15 }),
    subnet: name("The name or id of a subnet of the VPC."),
    ip: string({ description: "The requested address.", maxLength: 45 }),
    portID: string({
      description: "The id of a port that exists already.",
      pattern: "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
    }),
    securityGroup: name("The name or id of the only security group."),
    securityGroups: array(name("The name or id of a security group."), {
      description: "The security groups; not together with securityGroup.",
      maxItems: MAX_SECURITY_GROUPS,
    }),
    mac: string({ description: "The requested MAC address.", pattern: "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$" }),
    tag: string({ description: "Any text of the user; it is copied to the status." }),
    ipv6Enabled: boolean({ description: "Whether the NIC also takes an IPv6 address of the VPC. Default: false." }),
    defaultRoute: boolean({ description: "Whether the default route is through this NIC. Default: the first NIC." }),
  },
  { description: "A NIC of the pod.", required: ["name"] },
);

/** `spec` of a NicClaim (docs/spec/vpc-nics.md#3.1). */
export const nicClaimSpecSchema = object(
  {
    podName: name("The name of the pod."),
    podUID: string({ description: "The uid of the pod, which is the name of the claim.", maxLength: 63 }),
    vpc: name("The name or id of the VPC."),
    provider: name("The name of the provider in the NicPolicy."),
    projectID: name("The project of the VPC at the provider, if the NicPolicy names one."),
    nics: listMap("name", nicSchema, {
      description: "The NICs in the order of the pod, with all names.",
      minItems: 1,
      maxItems: MAX_NICS,
    }),
    vm: object(
      { flavor: name("The flavor of the machine.") },
      { description: "Present if the pod is a virtual machine." },
    ),
  },
  {
    description: "The wanted ports of a pod.",
    required: ["podName", "podUID", "vpc", "provider", "nics"],
  },
);

/** One address of a NIC. */
const nicAddressSchema = object(
  {
    ip: string({ description: "The address." }),
    prefixLength: int32({ description: "The prefix length of its subnet.", minimum: 0, maximum: 128 }),
    subnetID: string({ description: "The id of its subnet." }),
    gateway: string({ description: "The gateway of the subnet; absent if it has none." }),
  },
  { description: "An address of the NIC.", required: ["ip", "prefixLength"] },
);

/** The state of one NIC (docs/spec/vpc-nics.md#3.2). */
export const nicStatusSchema = object(
  {
    name: string({ description: "The name of the NIC.", maxLength: 15 }),
    portID: string({ description: "The id of the port." }),
    portName: string({ description: "The name of the port." }),
    createdByController: boolean({
      description:
        "Whether the controller has created the port, and so deletes it. It is stored before portID, or with it.",
    }),
    state: oneOf(NIC_STATES, { description: "The state of the NIC." }),
    reason: string({ description: "Why it is in this state, one word such as IpInUse." }),
    message: string({ description: "The same for people." }),
    tag: string({ description: "The user's text of the NIC." }),
    securityGroups: array(name("The name or id of a security group."), {
      description: "The security groups of the NIC that the port was given last; empty: the default ones.",
      maxItems: MAX_SECURITY_GROUPS,
    }),
    networkID: string({ description: "The id of the network." }),
    subnetID: string({ description: "The id of the subnet of the first address." }),
    mac: string({ description: "The MAC address." }),
    mtu: int32({ description: "The MTU of the network, in bytes.", minimum: 0 }),
    ips: array(nicAddressSchema, { description: "The addresses." }),
    routes: array(
      object(
        { dst: string({ description: "The destination, a CIDR." }), via: string({ description: "The gateway." }) },
        { required: ["dst", "via"] },
      ),
      { description: "The routes of the subnets." },
    ),
    dns: object(
      {
        nameservers: array(string(), { description: "Addresses of name servers." }),
        search: array(string(), { description: "Search domains." }),
      },
      { description: "The name servers of the subnets." },
    ),
    host: string({ description: "The host that the port is bound to." }),
    vifType: string({ description: "How the port is plugged, as Neutron says; such as ovs." }),
    vifDetails: object(
      {
        ovsHybridPlug: boolean({ description: "Whether the port needs a Linux bridge." }),
        bridgeName: string({ description: "The integration bridge." }),
        datapathType: string({ description: "The datapath of Open vSwitch: system or netdev." }),
        portFilter: boolean({ description: "Whether the agent filters the port." }),
      },
      { description: "Details of the binding." },
    ),
    vethName: string({ description: "The device that Alcor's agent makes." }),
    netns: string({ description: "The network namespace in which it makes it." }),
    savedDevice: object(
      {
        deviceID: string({ description: "The device of the port." }),
        deviceOwner: string({ description: "The owner of the device." }),
        host: string({ description: "The host of the port." }),
      },
      { description: "What a port of the user had before, to be restored on release." },
    ),
    lostAt: time("When the node lost the device last, as far as the port was bound since then."),
    activeAt: time("When the port became active."),
    createdAt: time("When the port was created, or taken over."),
    attempts: int32({ description: "The failed attempts in a row.", minimum: 0 }),
    nextRetryAt: time("When the next attempt is made."),
  },
  { description: "The state of a NIC.", required: ["name", "state"] },
);

/** One condition of a NicClaim, such as `Plugged`. */
export const nicConditionSchema = object(
  {
    type: string({ description: "The type of the condition, such as Plugged or Unplugged.", maxLength: 316 }),
    status: oneOf(["True", "False", "Unknown"], { description: "Whether it holds." }),
    reason: string({ description: "Why, in one word." }),
    message: string({ description: "The same for people." }),
    lastTransitionTime: time("When the status changed."),
    observedGeneration: int32({ description: "The generation of the claim that it is about.", minimum: 0 }),
  },
  { description: "A condition of the claim.", required: ["type", "status"] },
);

/** `status` of a NicClaim. */
export const nicClaimStatusSchema = object(
  {
    observedGeneration: int32({ description: "The generation of the spec that the status is about.", minimum: 0 }),
    nodeName: string({ description: "The node of the pod." }),
    phase: oneOf(CLAIM_PHASES, { description: "The phase of the claim." }),
    conditions: listMap("type", nicConditionSchema, { description: "The conditions." }),
    nics: listMap("name", nicStatusSchema, {
      description:
        "The NICs of the pod, and those that it does not want any more and whose ports are not released yet.",
      maxItems: 2 * MAX_NICS,
    }),
    plugged: object(
      {
        generation: int32({
          description: "The generation of the claim that the node has followed: it has no NIC that this one lacks.",
          minimum: 0,
        }),
        nics: array(
          object(
            {
              name: string({ description: "The name of the NIC.", maxLength: 15 }),
              device: string({ description: "The TAP device that a virtual machine's runtime takes.", maxLength: 15 }),
            },
            { description: "A NIC that the node has.", required: ["name"] },
          ),
          { description: "The NICs that the node has, or is making.", maxItems: 2 * MAX_NICS },
        ),
      },
      { description: "The NICs of the pod on its node; the node's agent writes it.", required: ["generation", "nics"] },
    ),
  },
  { description: "The observed ports of the pod." },
);

const maxNics = (description: string) => int32({ description, minimum: 0, maximum: MAX_NICS });
const limited = (description: string) => object({ maxNics: maxNics("The most NICs of a pod.") }, { description });

/** `spec` of a NicPolicy (docs/spec/vpc-nics.md#3.4). */
export const nicPolicySpecSchema = object(
  {
    containers: limited("The limit of pods with containers. Default: 4 NICs."),
    flavors: map(limited("The limit of a flavor."), { description: "The limits of virtual machines, by flavor." }),
    unknownFlavor: limited("The limit of virtual machines of any other flavor. Default: 1 NIC."),
    tenants: listMap(
      "name",
      object(
        {
          name: string({ description: "The name of the tenant, for messages.", maxLength: 253 }),
          selector: object(
            {
              names: array(string({ maxLength: 63 }), { description: "Names of namespaces." }),
              matchLabels: map(string({ maxLength: 63 }), {
                description: "Labels of namespaces, all of which must match.",
              }),
            },
            { description: "The namespaces of the tenant: the named ones, and those with the labels." },
          ),
          maxNics: maxNics("The most NICs of a pod of the tenant."),
          maxPorts: int32({ description: "The most ports of all pods of the tenant.", minimum: 0 }),
        },
        { required: ["name", "selector"] },
      ),
      { description: "Limits of tenants. A namespace belongs to the first tenant that selects it." },
    ),
    defaultSecurityGroups: array(name("The name or id of a security group."), {
      description: "The security groups of ports whose NIC names none.",
    }),
    hotplug: boolean({ description: "Whether NICs can be added to and removed from running pods. Default: false." }),
    schedulingGate: boolean({
      description: "Whether pods get a node only when all their ports exist, by a scheduling gate. Default: false.",
    }),
    providers: listMap(
      "name",
      object(
        {
          name: string({ description: "The name of the provider.", maxLength: 63 }),
          type: oneOf(["neutron", "alcor"], { description: "The kind of its API." }),
          default: boolean({
            description: "Whether it has the VPCs that no binding names. Default: the only provider.",
          }),
          config: opaque<Record<string, unknown>>({ description: "Settings of the provider, without secrets." }),
        },
        { required: ["name", "type"] },
      ),
      { description: "The providers of VPCs." },
    ),
    vpcBindings: array(
      object(
        {
          vpc: name("The name or id of a VPC, as pods write it."),
          provider: string({ description: "Its provider. Default: the default provider.", maxLength: 63 }),
          projectID: name(
            "Its project at the provider. A VPC of Neutron by name needs one: it is looked up there alone.",
          ),
          namespaces: array(string({ maxLength: 63 }), {
            description: "The namespaces that may use it. Empty: all.",
          }),
        },
        { required: ["vpc"] },
      ),
      {
        description:
          "Which namespaces may use which VPC. A VPC without a binding is available nowhere, unless allowUnboundVPCs is true and no binding names namespaces.",
      },
    ),
    allowUnboundVPCs: boolean({
      description:
        "Whether every namespace may use every VPC that no binding names: whoever may make pods gets a port in any network of the cloud, by its id. Default: false.",
    }),
  },
  { description: "The rules for NICs of pods." },
);
