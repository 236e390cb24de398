import * as v from "valibot";
import { atNeutron, NeutronClient, neutronFault } from "#cloud/neutron";
import { RestClient } from "#cloud/rest";
import { type Cloud, openAccess, readConfig } from "../cloud.ts";
import { NeutronProvider } from "./neutron-provider.ts";

const configSchema = v.strictObject({
  vpcIs: v.exactOptional(v.picklist(["network", "project"], "must be network or project"), "network"),
  allowGatewayAddress: v.exactOptional(v.boolean("must be true or false"), false),
});

/** OpenStack Neutron, whose ports Open vSwitch plugs: of ML2/OVS and of OVN. */
export const neutronCloud: Cloud = {
  type: "neutron",
  vifTypes: ["ovs"],
  isReadyWhenPlugged: false,
  // With `vpcIs: project` the VPC is the project.
  hasNamesOfAnyProject: ({ vpcIs }) => vpcIs !== "project",
  open: (deps, init) => {
    const { vpcIs, allowGatewayAddress: allowsGatewayAddress } = readConfig(configSchema, init);
    const { auth, rest: options } = openAccess(deps, init);
    const rest = new RestClient(
      { ...deps, auth: atNeutron(auth) },
      { ...options, service: "Neutron", faultOf: neutronFault },
    );
    const { name, onCreate } = init;
    return new NeutronProvider(
      { neutron: new NeutronClient(rest), clock: deps.clock },
      { name, vpcIs, allowsGatewayAddress, onCreate, resources: [rest, auth] },
    );
  },
};
