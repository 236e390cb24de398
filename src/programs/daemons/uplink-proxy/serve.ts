import { join } from "node:path";
import { type TaskGroup, untilAborted } from "#base/async";
import { systemClock } from "#base/clock";
import { type Health, readiness } from "#base/health";
import type { IpAddress } from "#base/ip";
import { type Logger, Repeats } from "#base/log";
import { repeat } from "#base/reconcile";
import type { ConfigSource, ListenerSettings } from "#base/uplink-model";
import { VERSION } from "#base/version";
import {
  type ClusterSecret,
  EnvironmentWatch,
  HealthParts,
  METRICS_MAP_PATH,
  PodAccess,
  runCdiSync,
  secretFromApi,
  secretFromFile,
  startWorkers,
  UplinkProxy,
  withLateClient,
} from "#features/uplink-proxy";
import { ownMark, startWatchdog, TransparentKeeper, type Uplinkd } from "#features/uplink-routing";
import type { NetStack } from "#kernel/net";
import type { Nft } from "#kernel/nft";
import { epollStreamsFault, type TcpStreamsKind } from "#kernel/reactor";
import { listenTcp } from "#kernel/socket";
import type { KubeApi, KubeClient } from "#kube/client";
import { followServers } from "../../shared/daemon/index.ts";
import { ownCommand } from "../../shared/program/index.ts";

/** Dependencies of the proxy. */
export interface ServeDeps {
  readonly group: TaskGroup;
  readonly uplinkd: Uplinkd;
  readonly config: ConfigSource;
  readonly stack: NetStack;
  readonly nft: Nft;
  readonly health: Health;
  readonly log: Logger;
  /** Needed with `cdi` and `clusterSecret`. Rejects with `KubeConfigError` while there is no kubeconfig. */
  readonly openApi: (() => Promise<KubeClient>) | undefined;
}

/** The flags of the program that the proxy needs. */
export interface ServeOptions {
  readonly runDir: string;
  readonly secretsDir: string;
  readonly offSwitch: string;
  readonly sentinel: string;
  readonly clusterSecretFile: string | undefined;
  readonly clusterSecret: readonly [string, string] | undefined;
  readonly cdi: boolean;
  readonly streams: "auto" | TcpStreamsKind;
  /** True if this process also programs the kernel: only then it may redirect connections to itself (transparent mode). */
  readonly ownsKernel: boolean;
}

/** Starts the proxy's tasks in the group. The caller disposes the returned object after the group has ended. */
export function serveProxy(deps: ServeDeps, options: ServeOptions): Disposable {
  const { group, uplinkd, config, log } = deps;
  const { settings } = uplinkd;
  const mark = settings.transparent.enabled && options.ownsKernel ? ownMark(settings.transparent) : undefined;
  const env = new EnvironmentWatch(options.sentinel, () => uplinkd.settings.cluster.nodeIP);
  const pods = openPodAccess(deps, options);
  const parts = new HealthParts(deps.health);
  const updateHealth = (): void => {
    const { settings: current, configError, snapshots } = uplinkd;
    parts.update({ settings: current, configError, snapshot: snapshots.current, bound: proxy.bound });
  };
  const proxy: UplinkProxy = new UplinkProxy(
    {
      snapshots: uplinkd.snapshots,
      evidence: uplinkd.evidence,
      clock: systemClock,
      log,
      openListener: ({ address, port }: ListenerSettings) =>
        listenTcp(address, port, { transparent: true, noDelay: true }),
      secrets: pods,
      startThreads: startWorkers,
      readiness: (how) => {
        updateHealth();
        return readiness(deps.health, how);
      },
      health: () => ({
        ...(uplinkd.configError === undefined ? {} : { configError: uplinkd.configError }),
        env: env.state,
      }),
    },
    settings,
    {
      version: VERSION,
      streams: chooseStreams(options.streams, log),
      metricsMapPath: join(options.runDir, METRICS_MAP_PATH),
      ...(mark === undefined ? {} : { mark }),
    },
  );
  if (options.ownsKernel) group.spawn((signal) => keepTransparent(deps, options, proxy, mark, signal));
  group.spawn((signal) => repeat(async () => updateHealth(), { signal, clock: systemClock, everyMs: HEALTH_MS }));
  group.spawn((signal) => env.run({ signal, clock: systemClock }));
  group.spawn((signal) => proxy.run({ signal }));
  return config.onChange(() => {
    pods.settingsChanged();
    proxy.reload(uplinkd.settings);
  });
}

/**
 * The streams that the flag selects. `auto` selects epoll if this runtime supports it (decision 0006). Throws {@link KernelError} if the
 * flag requires epoll and the runtime does not support it, or if epoll fails for another reason.
 */
function chooseStreams(wanted: ServeOptions["streams"], log: Logger): TcpStreamsKind {
  if (wanted === "node") return wanted;
  const error = epollStreamsFault();
  if (error === undefined) return "epoll";
  if (wanted === "epoll" || error.code !== "unsupported") throw error;
  log.warn("this runtime does not support own epoll descriptors: connections use Node.js's sockets", { error });
  return "node";
}

/** Interval at which the health parts are updated for the log, in milliseconds; GET /readyz updates them at once. */
const HEALTH_MS = 2000;

/** Redirects connections to the proxy (transparent mode) while the proxy is healthy. */
async function keepTransparent(
  { uplinkd, stack, nft, health, log }: ServeDeps,
  { offSwitch }: ServeOptions,
  proxy: UplinkProxy,
  mark: number | undefined,
  signal: AbortSignal,
): Promise<void> {
  // Without IPv6 its listener cannot be bound; only IPv4 is redirected then.
  const hasAddress = (address: IpAddress): boolean =>
    uplinkd.snapshots.current.localAddresses.some((own) => own.equals(address));
  const isListening = ({ role, name, address }: ListenerSettings): boolean =>
    role !== "transparent" || proxy.bound.has(name) || !hasAddress(address);
  let isTold = false;
  const healthy = (): boolean => {
    if (mark === undefined && !isTold) {
      log.warn("transparent mode needs a restart of uplink-proxy: the sockets of the running process have no mark");
      isTold = true;
    }
    return mark !== undefined && uplinkd.settings.listeners.every(isListening);
  };
  const keeper = new TransparentKeeper(
    {
      stack,
      nft,
      settings: () => uplinkd.settings,
      healthy,
      startWatchdog: (marks) => startWatchdog(marks, ownCommand()),
      health: health.part("transparent", { needed: "always" }),
      clock: systemClock,
      log,
    },
    { offSwitch },
  );
  await keeper.run({ signal });
}

/** Opens the access of pods: token, certificate and CDI object, while the settings have a listener for pods. */
function openPodAccess(deps: ServeDeps, options: ServeOptions): PodAccess {
  const { group, uplinkd, log, openApi } = deps;
  let api: KubeApi | undefined;
  const said = { log, repeats: new Repeats() };
  const clusterSecret = (): Promise<ClusterSecret> => {
    if (options.clusterSecretFile !== undefined) return secretFromFile(options.clusterSecretFile, said);
    if (options.clusterSecret === undefined) return Promise.resolve({ kind: "standalone" });
    // Until there is an API client, the secrets on disk are kept.
    if (api === undefined) return Promise.resolve({ kind: "unknown" });
    return secretFromApi(api, options.clusterSecret, said, group.signal);
  };
  const settings = () => uplinkd.settings;
  const pods = new PodAccess({ clock: systemClock, log, clusterSecret }, { dir: options.secretsDir, settings });
  group.spawn((signal) => pods.run({ signal }));
  const useApi = async (opened: KubeClient, signal: AbortSignal): Promise<void> => {
    await using _servers = followServers("uplink-proxy", [opened], { log });
    api = opened;
    pods.settingsChanged();
    if (options.cdi) await runCdiSync({ clock: systemClock, api, log, settings, access: pods }, { signal });
    else await untilAborted(signal);
  };
  if (openApi !== undefined) {
    group.spawn((signal) =>
      withLateClient(openApi, (opened) => useApi(opened, signal), { log, clock: systemClock }, { signal }),
    );
  }
  return pods;
}
