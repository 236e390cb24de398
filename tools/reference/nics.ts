import { endpoints, rights, type Section, section } from "#base/estate";

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
      [
        "`ProviderHostKept`",
        "the Node has lost its annotation `isthmus.dev/provider-host`; ports that work stay bound to the host that it named",
      ],
      ["the reason of a NIC, such as `IpInUse`", "a NIC has failed; the note has its name and the provider's words"],
    ),
    rights(
      ["pods", "get, list, watch; patch: the annotations with the state of NICs"],
      ["pods/status", "patch: the condition `isthmus.dev/NicsReady`"],
      ["namespaces", "get, list, watch"],
      ["nodes", "list, watch"],
      ["`nicclaims`", "get, list, watch, create, patch, delete; `nicclaims/status`: patch"],
      ["`nicpolicies`", "list, watch"],
      ["events", "create, patch"],
      ["leases in `kube-system`", "create, and get and update of that Lease alone"],
      [
        "with `--enable-cert-rotation`",
        "get, list, watch, update of the Secret and the two webhook configurations of `deploy/nics/webhooks.yaml`",
      ],
    ),
  ],
  nicctl: [
    section("States of checks of `doctor`", "state", "when")(
      ["`ok`", "it is as it should be"],
      ["`warning`", "something that is wanted is missing, or may be wrong"],
      ["`wrong`", "pods have no network by it, or will have none; the exit code is 1"],
      ["`unknown`", "it could not be looked at, such as for a missing right"],
    ),
    section("Steps of `trace`", "step", "done when")(
      ["`wish`", "the annotations can be read, and the pod is not in the network of its node"],
      ["`admission`", "always; the text says whether the webhook has written the normal form"],
      ["`claim`", "there is a NicClaim"],
      ["`port`", "the port is made, or taken over from its user"],
      ["`scheduled`", "the pod has a node"],
      ["`bound`", "the port is bound to a host; the time is not recorded"],
      ["`plugged`", "`nic-agent` has told so"],
      ["`active`", "the provider has told so"],
      ["`shown`", "the pod's condition `isthmus.dev/NicsReady` is true"],
    ),
    section("The output of `-o json`", "command", "members")(
      [
        "`status`",
        "`nics`: `namespace`, `pod`, `nic`, `state` (`NoClaim` without one), `phase`, `port`, `addresses`, `node`, `reason`, `message`",
      ],
      [
        "`trace`",
        "`namespace`, `pod`, `uid`, `nics` (`nic`, `steps`: `step`, `state`, `at`, `text`; `stands`: `step`, `why`, `remedy`; absent if it is ready), `events` (`at`, `reason`, `count`, `note`)",
      ],
      [
        "`gc`",
        "`clusterId`, `ports`: `provider`, `port`, `name`, `addresses`, `createdAt`, `isDeleted`, and `error` of one that could not be deleted",
      ],
      ["`doctor`", "`checks`: `state`, `subject`, `text`, `remedy`"],
    ),
    rights(
      ["`nicclaims`, pods, namespaces", "get, list; for all commands but convert"],
      ["events", "list; without it `trace` has none"],
      ["`nicpolicies`", "get; for gc and doctor"],
      ["nodes; pods and endpointslices of `kube-system`", "list; for doctor"],
      [
        "leases, secrets and webhook configurations of `nic-controller`",
        "get; for doctor, which says what it cannot read",
      ],
    ),
  ],
};
