import { endpoints, rights, type Section, section } from "./section.ts";

/** Notes by program. A number that a flag sets is the flag's default. */
export const nics: Readonly<Record<string, readonly Section[]>> = {
  "nic-controller": [
    endpoints(":9406", ":9407"),
    section("Providers of the NicPolicy", "type", "`config`")(
      [
        "`neutron`",
        "`vpcIs`: what the name of a VPC is, `network` (default) or `project`; `allowGatewayAddress`: whether a NIC may ask for the address of its subnet's gateway, default false",
      ],
      [
        "`alcor`",
        "`projectID`, needed; `nsPrefix`: the beginning of the names of VPCs' network namespaces, default `vpc-ns`; `allowGatewayAddress`",
      ],
      ["without providers", "one of the name and type `neutron`"],
    ),
    section("Events of pods", "reason", "when")(
      ["`PortCreated`, `PortDeleted`", "a port was made, or deleted with its pod"],
      ["`HostNetworkIgnored`", "a pod with the network of its node asks for NICs"],
      [
        "`InvalidNics`, `NicsRefused`, `ProviderUnknown`",
        "a pod gets no claim: what it asks for is faulty, not allowed, or of no provider",
      ],
      ["the reason of a NIC, such as `IpInUse`", "a NIC has failed; the note has its name and the provider's words"],
    ),
    rights(
      ["pods", "get, list, watch; patch: the annotations with the state of NICs"],
      ["pods/status", "patch: the condition `isthmus.dev/NicsReady`"],
      ["namespaces, nodes", "get, list, watch"],
      ["`nicclaims`", "get, list, watch, create, patch, delete; `nicclaims/status`: patch"],
      ["`nicpolicies`", "get, list, watch"],
      ["events", "create, patch"],
      ["leases in `kube-system`", "get, create, update"],
      [
        "with `--enable-cert-rotation`",
        "get, list, watch, update of the Secret and the two webhook configurations of `deploy/nics/webhooks.yaml`",
      ],
    ),
  ],
};
