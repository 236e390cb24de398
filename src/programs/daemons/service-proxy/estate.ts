import { type Estate, listeners, rights, section } from "#base/estate";
import { servicesEstate } from "#features/service-proxy";
import { ownFolders } from "../../shared/estate/index.ts";

/** All that `service-proxy` owns on its node. Pure. */
export function serviceProxyEstate(settings: { readonly tableName: string; readonly mark: number }): Estate {
  return {
    kernel: servicesEstate(settings),
    files: [],
    folders: ownFolders("service-proxy"),
    sections: SECTIONS,
  };
}

const SECTIONS: Estate["sections"] = [
  listeners(
    ["`:10256/healthz`", "200 if load balancers may use this node, else 503; JSON with the reasons"],
    ["`:10256/livez`", "503 if a restart may help: a change has waited for twice `--sync-period`"],
    ["`:10256/readyz`", "200 if no part below is degraded, else 503; one line for each"],
    ["`NODE:healthCheckNodePort/`", "of a Service of policy Local: 200 if this node has ready endpoints, else 503"],
    ["`127.0.0.1:10249/metrics`", "metrics in Prometheus' text format"],
  ),
  section("Parts of `/readyz`", "part", "degraded when")(
    [
      "`watch services`, `watch endpointslices`, `watch nodes`, `watch servicecidrs`",
      "it was not read yet, or cannot be read now. ServiceCIDRs that the API server does not serve count as read",
    ],
    ["`nftables IPv4`, `nftables IPv6`", "there was no sync yet, or the last one failed"],
    ["`conntrack`", "connection tracking could not be read or changed at the last try: stale UDP flows stay"],
  ),
  rights(
    ["services, endpointslices, servicecidrs", "list, watch"],
    ["nodes", "list, watch: the proxy's own Node"],
    [
      "events",
      "create, patch: at the start, for a health check port that cannot be bound, an unreadable object, an address that belongs to another Service",
    ],
  ),
];
