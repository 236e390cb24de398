import { join } from "node:path";
import { untilAborted } from "#base/async";
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
import type { Part } from "../../shared/daemon-kit/index.ts";
import { ownCommand } from "../../shared/program/index.ts";

/** Dependencies of the proxy. */
export interface ServeDeps {
  /** Aborts when the program ends. */
  readonly signal: AbortSignal;
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

/** The proxy: its parts, and the end of its interest in the settings, for which the caller disposes it. */
export interface ProxyParts extends Disposable {
  readonly parts: readonly Part[];
}

/** Makes the proxy, with its listeners' secrets and its health. Throws `KernelError` if the flag requires streams that this runtime does not have. */
export function proxyParts(deps: ServeDeps, options: ServeOptions): ProxyParts {
  const { uplinkd, config } = deps;
  const { transparent } = uplinkd.settings;
  const mark = transparent.enabled && options.ownsKernel ? ownMark(transparent) : undefined;
  const env = new EnvironmentWatch(options.sentinel, () => uplinkd.settings.cluster.nodeIP);
  const { pods, parts: podParts } = openPodAccess(deps, options);
  const health = new HealthParts(deps.health);
  const updateHealth = (): void => {
    const { settings: current, configError, snapshots } = uplinkd;
    health.update({ settings: current, configError, snapshot: snapshots.current, bound: proxy.bound });
  };
  const proxy = openProxy(deps, options, { mark, pods, env, updateHealth });
  const settings = config.onChange(() => {
    pods.settingsChanged();
    proxy.reload(uplinkd.settings);
  });
  const parts: readonly Part[] = [
    ...podParts,
    ...(options.ownsKernel ? [transparentPart(deps, options, proxy, mark)] : []),
    {
      name: "health",
      run: ({ signal }) => repeat(async () => updateHealth(), { signal, clock: systemClock, everyMs: HEALTH_MS }),
    },
    { name: "environment", run: ({ signal }) => env.run({ signal, clock: systemClock }) },
    { name: "proxy", run: (at) => proxy.run(at) },
  ];
  return { parts, [Symbol.dispose]: () => settings[Symbol.dispose]() };
}

function openProxy(
  { uplinkd, health, log }: ServeDeps,
  { runDir, streams }: ServeOptions,
  {
    mark,
    pods,
    env,
    updateHealth,
  }: {
    readonly mark: number | undefined;
    readonly pods: PodAccess;
    readonly env: EnvironmentWatch;
    readonly updateHealth: () => void;
  },
): UplinkProxy {
  return new UplinkProxy(
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
        return readiness(health, how);
      },
      health: () => ({
        ...(uplinkd.configError === undefined ? {} : { configError: uplinkd.configError }),
        env: env.state,
      }),
    },
    uplinkd.settings,
    {
      version: VERSION,
      streams: chooseStreams(streams, log),
      metricsMapPath: join(runDir, METRICS_MAP_PATH),
      ...(mark === undefined ? {} : { mark }),
    },
  );
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
function transparentPart(
  { uplinkd, stack, nft, health, log }: ServeDeps,
  { offSwitch }: ServeOptions,
  proxy: UplinkProxy,
  mark: number | undefined,
): Part {
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
  return { name: "transparent", run: (at) => keeper.run(at) };
}

/** The access of pods: token, certificate and CDI object, while the settings have a listener for pods. */
function openPodAccess(
  deps: ServeDeps,
  options: ServeOptions,
): { readonly pods: PodAccess; readonly parts: readonly Part[] } {
  const { uplinkd, log, openApi } = deps;
  let api: KubeApi | undefined;
  const said = { log, repeats: new Repeats() };
  const clusterSecret = (): Promise<ClusterSecret> => {
    if (options.clusterSecretFile !== undefined) return secretFromFile(options.clusterSecretFile, said);
    if (options.clusterSecret === undefined) return Promise.resolve({ kind: "standalone" });
    // Until there is an API client, the secrets on disk are kept.
    if (api === undefined) return Promise.resolve({ kind: "unknown" });
    return secretFromApi(api, options.clusterSecret, said, deps.signal);
  };
  const settings = () => uplinkd.settings;
  const pods = new PodAccess({ clock: systemClock, log, clusterSecret }, { dir: options.secretsDir, settings });
  const useApi = async (opened: KubeClient, signal: AbortSignal): Promise<void> => {
    await using _servers = followServers("uplink-proxy", [opened], { log });
    api = opened;
    pods.settingsChanged();
    if (options.cdi) await runCdiSync({ clock: systemClock, api, log, settings, access: pods }, { signal });
    else await untilAborted(signal);
  };
  const parts: readonly Part[] = [{ name: "pod-access", run: (at) => pods.run(at) }];
  if (openApi === undefined) return { pods, parts };
  const run: Part["run"] = ({ signal }) =>
    withLateClient(openApi, (opened) => useApi(opened, signal), { log, clock: systemClock }, { signal });
  return { pods, parts: [...parts, { name: "api", run }] };
}
