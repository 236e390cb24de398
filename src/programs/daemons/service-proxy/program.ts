import { systemClock } from "#base/clock";
import { describeError, ExpectedError } from "#base/errors";
import type { IpFamily } from "#base/ip";
import { createLogger, type Logger } from "#base/log";
import { createRegistry } from "#base/metrics";
import { serviceProxyMetrics } from "#features/service-health";
import {
  checkKernelVersion,
  DataPlane,
  GenerationTracker,
  hasLegacyNat,
  kernelRelease,
  leftovers,
  type ProxyKernel,
  prepareKernel,
  SKIP_VERSION_CHECK,
  setOomScore,
  supportedFamilies,
  tryConstructs,
} from "#features/service-proxy";
import { openConntrack } from "#kernel/conntrack";
import { Monitors } from "#kernel/monitor";
import { type NetNs, type NetStack, openKernel } from "#kernel/net";
import { openNft } from "#kernel/nft";
import { type NftElements, openNftElements } from "#kernel/nft-elements";
import { openSockDiag } from "#kernel/sock-diag";
import { FOLLOWED_SERVERS_NOTE } from "../../shared/api-server-flag/index.ts";
import { followServers, openClient } from "../../shared/daemon/index.ts";
import { leaveEstate } from "../../shared/estate/index.ts";
import { restClientMetrics } from "../../shared/metrics/index.ts";
import { sayOpenFiles } from "../../shared/open-files/index.ts";
import { asideMetrics } from "../../shared/pass-record/index.ts";
import { defineProgram, EXIT, requirePrivileges } from "../../shared/program/index.ts";
import {
  type ServiceProxyConfig,
  serviceProxyConfig,
  serviceProxyFlags,
  writeConfigTo,
} from "../../shared/service-proxy-config/index.ts";
import { serviceProxyEstate } from "./estate.ts";
import { type ServeParts, serve } from "./serve.ts";

/** `service-proxy` (docs/spec/service-proxy.md). */
export const serviceProxy = defineProgram({
  name: "service-proxy",
  summary:
    "Implements Services with nftables and replaces kube-proxy: it has kube-proxy's flags, configuration file, ports and metrics.",
  flags: serviceProxyFlags,
  metrics: [serviceProxyMetrics, restClientMetrics, asideMetrics],
  estate: ({ tableName, masqueradeBit }) => serviceProxyEstate({ tableName, mark: (1 << masqueradeBit) >>> 0 }),
  notes: [
    "The rules stay when the program ends: connections continue, and the next start uses the rules again. --cleanup removes them.",
    "With --config other flags of kube-proxy are ignored, except those for logging and the node's name, as there. The program ends when the file changes, so that a supervisor starts it again.",
    `Needs Linux 5.13; the environment variable ${SKIP_VERSION_CHECK}=1 allows an older kernel.`,
    FOLLOWED_SERVERS_NOTE,
  ],
  run: async ({ values, given, signal }) => {
    if (values.writeConfigTo !== undefined) {
      writeConfigTo(values.writeConfigTo, values);
      return EXIT.ok;
    }
    const config = serviceProxyConfig(values, given);
    const log = createLogger({
      name: "service-proxy",
      level: (values.verbosity ?? 0) >= 2 ? "debug" : "info",
      encoder: values.loggingFormat === "json" ? "json" : "console",
    });
    if (!values.cleanup && !values.initOnly) sayOpenFiles(log);
    for (const note of config.notes) log.warn(note);
    requirePrivileges("program nftables", ["CAP_NET_ADMIN"]);
    const kernel = openKernel();
    using netns = kernel.openNetNs(values.netns === undefined ? "own" : { path: values.netns });
    using stack = kernel.openStack(netns);
    const setAgain = values.cleanup ? undefined : await prepare(stack, config, log);
    if (values.initOnly) {
      setAgain?.();
      return EXIT.ok;
    }
    using nft = openNft(netns);
    using elements = openNftElements(netns);
    reportLeftovers({ netns, stack, elements }, config, log);
    const opened = { netns, stack, nft, elements, generations: new GenerationTracker(elements) };
    if (values.cleanup) return await cleanUp(opened, config, log);
    await proxyServices(opened, { config, flags: values, log, onFirstSync: setAgain }, signal);
    return EXIT.ok;
  },
});

/** Logs each object of another proxy in the network namespace that may translate Services. */
function reportLeftovers(
  { netns, stack, elements }: { readonly netns: NetNs; readonly stack: NetStack; readonly elements: NftElements },
  config: ServiceProxyConfig,
  log: Logger,
): void {
  const host = { elements, links: stack.links, hasLegacyNat: (family: IpFamily) => hasLegacyNat(netns, family) };
  for (const leftover of leftovers(host, config.tableName)) {
    log.warn("this network namespace has objects that another proxy may have left, and that may translate Services", {
      leftover,
    });
  }
}

/** Opens what the proxy needs besides its tables, and serves until the signal aborts. */
async function proxyServices(
  { netns, ...opened }: Omit<ProxyKernel, "conntrack"> & { readonly netns: NetNs },
  options: Pick<ServeParts, "config" | "flags" | "log" | "onFirstSync">,
  signal: AbortSignal,
): Promise<void> {
  const { config, flags, log } = options;
  setOomScore(config.oomScoreAdj, log);
  leaveEstate("service-proxy", serviceProxyEstate(config), { inode: netns.inode, log });
  using conntrack = openConntrack(netns);
  using sockets = openSockDiag(netns);
  await using monitors = new Monitors({
    onFailure: (error) => log.error("changes of the host's addresses are no longer noticed", { error: error.message }),
  });
  const registry = createRegistry();
  const connection = { kubeconfig: config.kubeconfig, master: flags.master, apiServer: flags.apiServer };
  await using api = await openClient("service-proxy", connection, { registry, clock: systemClock });
  await using _servers = followServers("service-proxy", [api], { log });
  const apiServer = api.connection.server;
  const kernel: ProxyKernel = { ...opened, conntrack };
  await serve({ ...options, kernel, api, apiServer, sockets, monitors, netns, registry }, signal);
}

/** Checks the kernel and sets its parameters. Returns what sets those that it does not have yet, to be called after a sync. */
async function prepare(
  stack: Pick<NetStack, "sysctl">,
  config: ServiceProxyConfig,
  log: Logger,
): Promise<(() => void) | undefined> {
  checkKernelVersion(kernelRelease(), { env: process.env, log });
  const tryFeatures = (): Promise<void> => tryConstructs(supportedFamilies(stack), log);
  return await prepareKernel({ sysctl: stack.sysctl, tryFeatures }, config.conntrack, { log });
}

/** Removes the tables of both families, and nothing else. If one family fails, the other is still removed. */
async function cleanUp(
  parts: Pick<ProxyKernel, "nft" | "elements" | "generations">,
  config: ServiceProxyConfig,
  log: Logger,
): Promise<number> {
  const options = { mark: config.mark, masqueradeAll: false, detector: undefined, nodePortAddresses: "set" } as const;
  let code: number = EXIT.ok;
  for (const family of [4, 6] as const) {
    const plane = new DataPlane(
      { ...parts, log, clock: systemClock },
      { ...options, family, tableName: config.tableName },
    );
    const name = `${family === 4 ? "ip" : "ip6"} ${config.tableName}`;
    try {
      const removed = await plane.remove();
      process.stdout.write(removed ? `removed table ${name}\n` : `there is no table ${name}\n`);
    } catch (error) {
      if (!(error instanceof ExpectedError)) throw error;
      log.error("cannot remove a table", { table: name, error: describeError(error) });
      code = EXIT.failed;
    }
  }
  return code;
}
