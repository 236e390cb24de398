import type { IpAddress } from "#base/ip";
import { isKernelError } from "#kernel/errors";
import { carriedAddresses } from "./ipv6-mtu.ts";
import type { AttachedPod } from "./listing.ts";
import type { Attachment, Parts } from "./parts.ts";
import { gatewayOf, type NodeAddresses } from "./plan.ts";
import { applyRepair, planRepair } from "./repair.ts";
import { planSettings } from "./router-settings.ts";
import { readRoutes } from "./survey.ts";

/** See {@link PodNetwork.repair}. `known` has the node's addresses, once they are known. */
export function repairObjects(
  parts: Pick<Parts, "host" | "options">,
  attachments: readonly AttachedPod[],
  addressesOf: (attachment: Attachment) => readonly IpAddress[] | undefined,
  known: NodeAddresses | undefined,
): number {
  const links = new Map(parts.host.links.list().map((link) => [link.index, link] as const));
  const wanted = attachments.flatMap((one) => {
    const link = links.get(one.ifindex);
    return link === undefined
      ? []
      : [{ link, addresses: carriedAddresses(addressesOf(one) ?? one.addresses, link.mtu) }];
  });
  const routes = readRoutes(parts.host, { ...parts.options, registerFromMain: false });
  const actual = { routes, addresses: parts.host.addresses.list() };
  const node = known ?? { ipv4: undefined, ipv6: undefined };
  const gateway4 = known === undefined ? undefined : gatewayOf(known, parts.options);
  const steps = planRepair(wanted, actual, node, gateway4);
  const failures = steps.flatMap((step) => {
    try {
      applyRepair(parts.host, step, parts.options);
      return [];
    } catch (error) {
      return [error];
    }
  });
  if (failures.length > 0) throw failures[0];
  return steps.length;
}

/** See {@link PodNetwork.repairSettings}. */
export function repairSettings(
  parts: Pick<Parts, "host" | "known" | "log" | "complained">,
  attachments: readonly AttachedPod[],
): { readonly changes: number; readonly failures: readonly unknown[] } {
  const links = attachments.map(({ ifindex, hostName }) => ({
    link: { name: hostName },
    ipv6: parts.known.mayHaveIpv6(ifindex),
  }));
  const steps = planSettings(parts.host.sysctl, links);
  const failures = steps.flatMap(({ key, value }) => {
    try {
      parts.host.sysctl.set(key, value);
      return [];
    } catch (error) {
      return isKernelError(error, "not-found") ? [] : [error];
    }
  });
  const [first] = steps;
  if (first !== undefined && !parts.complained.has("settings")) {
    parts.complained.add("settings");
    parts.log.info(
      "settings of the host's ends of pods' links were written again; another program, such as sysctl --system or a rule of udev, overwrites them",
      { settings: steps.length, first: `${first.key}=${first.value}` },
    );
  }
  return { changes: steps.length - failures.length, failures };
}
