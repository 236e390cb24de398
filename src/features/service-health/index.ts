/**
 * Node health for load balancers and kubelets (docs/spec/service-proxy.md#1): may load balancers use this node, is its proxy
 * alive, does the node have endpoints of a Service.
 *
 * Owns: {@link NodeHealth}, {@link HealthServer}, {@link MetricsServer}, {@link ServicePorts}, the metrics of the program.
 * Does not know: watches, flags, nftables, how Events are written.
 *
 * ```ts
 * const health = new NodeHealth({ healthTimeoutMs: 60_000, clock });
 * const onAnswer = healthMetrics(serviceProxyMetrics(registry), health);
 * const server = new HealthServer({ health, onAnswer, clock, log }, { address: { host: "0.0.0.0", port: 10256 } });
 * group.spawn((signal) => server.run({ signal }));
 * health.started([4, 6]); // then listed(), queued(4), syncing(4), synced(4), node(nodeView(node)), ...
 * ```
 */
export { type EventSink, type HealthEvent, startingEvent } from "./events.ts";
export { HealthServer, MetricsServer } from "./http/index.ts";
export { healthMetrics, programMetrics, SyncMetrics, serviceProxyMetrics, WatchMetrics } from "./metrics/index.ts";
export { lacksHealthPort, type ServiceHealth, ServicePorts, serviceHealth } from "./ports/index.ts";
export { NodeHealth, nodeView } from "./state/index.ts";
