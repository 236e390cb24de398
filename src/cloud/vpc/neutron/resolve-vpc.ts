import type { NeutronClient } from "#cloud/neutron";
import { ProviderError } from "../errors.ts";
import { subnetOf } from "../port-of.ts";
import type { Vpc, VpcRef } from "../provider.ts";
import { isUuid } from "../uuid.ts";
import { translated } from "./translated.ts";

/** The VPC of a name or an id with its networks and subnets, as they are now. Rejects with {@link ProviderError}. */
export async function resolveVpc(
  { vpc, projectId }: VpcRef,
  {
    neutron,
    isProject,
    signal,
  }: {
    readonly neutron: NeutronClient;
    /** True: the VPC is a project with all its networks; false: it is a network. */
    readonly isProject: boolean;
    readonly signal: AbortSignal;
  },
): Promise<Vpc> {
  const by = isProject
    ? { projectId: vpc }
    : { ...(isUuid(vpc) ? { id: vpc.toLowerCase() } : { name: vpc }), projectId };
  const found = await translated(neutron.listNetworks(by, { signal, isWhole: isProject }));
  const [network] = found;
  if (network === undefined) {
    const where = projectId === undefined ? "" : ` in project ${projectId}`;
    throw new ProviderError(
      "VpcNotFound",
      `there is no ${isProject ? "network of project" : "network"} ${vpc}${where}`,
      {
        retry: "slow",
      },
    );
  }
  if (!isProject && found.length > 1) {
    const ids = found.map(({ id }) => id).join(", ");
    throw new ProviderError("AmbiguousVpc", `several networks are named ${vpc}: ${ids}; write the id of one`, {
      retry: "slow",
    });
  }
  const subnets = await translated(neutron.listSubnets({ networkIds: found.map(({ id }) => id) }, { signal }));
  return {
    ref: vpc,
    projectId: projectId ?? (network.projectId === "" ? undefined : network.projectId),
    networks: new Map(found.map(({ id, mtu }) => [id, { mtu }])),
    subnets: subnets.map(subnetOf),
  };
}
