import { type Estate, exitCodes, listeners, section } from "#base/estate";
import type { IpAddress } from "#base/ip";
import { bindEstate } from "#features/tunnel";
import { ownFolders } from "../../shared/estate/index.ts";

/** All that `proxy-agent` owns on its node. `addresses`: the bind addresses, empty if it does not manage them. Pure. */
export function proxyAgentEstate(bind: { readonly name: string; readonly addresses: readonly IpAddress[] }): Estate {
  return {
    kernel: bindEstate(bind),
    files: [],
    folders: ownFolders("proxy-agent"),
    sections: SECTIONS,
  };
}

const SECTIONS: Estate["sections"] = [
  listeners(
    ["`:8093/healthz`", "200 `ok`, independent of servers"],
    ["`:8093/readyz`, `/ready`", "200 `ok`, or 503 and the checks; `?verbose` lists all of them"],
    ["`:8093/metrics`", "metrics in Prometheus' text format; `127.0.0.1:8094/metrics` redirects there"],
    [
      "`127.0.0.1:8094/debug/pprof/`",
      "with `--enable-profiling`: `profile?seconds=30` and `heap`, for Chrome DevTools",
    ],
  ),
  section("Checks of readiness", "name", "fails while")(
    ["`ping`", "never fails while the process answers"],
    ["`server-connected`", "the agent has no stream to a server"],
    ["`reverse-listener`", "with `--target`: no connected server serves the direction from nodes to the control plane"],
    ["`bind-interface`", "with `--target`: the bind addresses are not on this node, and cannot be added"],
    ["`leases`", "with `--count-server-leases`: the Leases were never read; later failures are only logged"],
  ),
  exitCodes(["0", "the program has ended after a signal"], ["1", "a flag is wrong, or listening has failed"]),
];
