import * as v from "valibot";
import { AlcorClient, alcorFault } from "#cloud/alcor";
import { RestClient } from "#cloud/rest";
import { type Cloud, openAccess, readConfig } from "../cloud.ts";
import { AlcorProvider } from "./alcor-provider.ts";

const configSchema = v.strictObject({
  projectID: v.pipe(v.string("must be the id of a project"), v.nonEmpty("is empty")),
  nsPrefix: v.exactOptional(v.string("must be a text"), "vpc-ns"),
  allowGatewayAddress: v.exactOptional(v.boolean("must be true or false"), false),
});

/** Alcor, whose agent makes the devices of its ports. */
export const alcorCloud: Cloud = {
  type: "alcor",
  vifTypes: ["alcor"],
  // docs/spec/vpc-nics.md#6.6
  isReadyWhenPlugged: true,
  // A provider has one project.
  hasNamesOfAnyProject: () => false,
  open: (deps, init) => {
    const { projectID: projectId, nsPrefix, allowGatewayAddress } = readConfig(configSchema, init);
    const { auth, rest: options } = openAccess(deps, init);
    const rest = new RestClient({ ...deps, auth }, { ...options, service: "Alcor", faultOf: alcorFault });
    return new AlcorProvider(
      { alcor: new AlcorClient(rest, { projectId }), clock: deps.clock },
      {
        name: init.name,
        projectId,
        nsPrefix,
        allowsGatewayAddress: allowGatewayAddress,
        resources: [rest, auth],
      },
    );
  },
};
