import { Counter, Gauge, Histogram, type Registry, startAtZero } from "#base/metrics";
import type { EgressClients } from "#features/egress";
import type { NodeIpam } from "#features/ipam";
import { GUARD_REASONS, type SourceGuard } from "#features/source-guard";
import { NftError } from "#kernel/nft";
import { CODE_NAMES, codeName } from "../../shared/metrics/index.ts";

const SERVICE = "pkg.cnirpc.CNI";
const METHODS = ["Add", "Del", "Check", "Status", "GC"] as const;

/** The NAT clients of this node. */
type ObservedClients = Pick<EgressClients, "count" | "translatedCount" | "routers">;
type Source = Pick<NodeIpam, "snapshot" | "lost">;

/**
 * Declares coild's metrics. `onProgress` and `onHandled` count calls of gRPC, `onBlockWait` the time for which an ADD waited for an
 * address, in seconds; the gauges of addresses have no values before `observe`.
 */
export function coildMetrics(registry: Registry): {
  readonly onProgress: (event: "started" | "received" | "sent", path: string) => void;
  readonly onRepaired: (repaired: { readonly host: number; readonly links: number; readonly pods: number }) => void;
  readonly onGuardRepaired: () => void;
  readonly onConflict: () => void;
  readonly onCollected: () => void;
  readonly observeGuard: (guard: Pick<SourceGuard, "counts">) => void;
  readonly onBlockWait: (seconds: number) => void;
  readonly onHandled: (path: string, code: number, seconds: number) => void;
  readonly observe: (ipam: Source) => void;
  readonly onDriver: (driver: string) => void;
  readonly onTwin: (isTwin: boolean) => void;
  readonly observeClients: (clients: ObservedClients) => void;
} {
  let ipam: Source | undefined;
  let guard: Pick<SourceGuard, "counts"> | undefined;
  guardCounter(registry, () => guard);
  ipamGauges(registry, () => ipam);
  let clients: ObservedClients | undefined;
  routerGauges(registry, () => clients?.routers);
  new Gauge({
    name: "coil_coild_nat_clients",
    help: "Pods of this node that have a NAT client.",
    registers: [registry],
    collect() {
      this.set(clients?.count ?? 0);
    },
  });
  new Gauge({
    name: "coil_coild_nat_clients_translated",
    help: "Pods with a NAT client whose tunnel packets this node translates, so that no router takes them.",
    registers: [registry],
    collect() {
      this.set(clients?.translatedCount ?? 0);
    },
  });
  const twin = new Gauge({
    name: "coil_coild_node_twin",
    help: "1 while another machine uses the name of this node: pods cannot start. Alert when the value is not 0.",
    registers: [registry],
  });
  twin.set(0);
  const driver = new Gauge({
    name: "coil_coild_tunnel_driver_info",
    help: "1, with the tunnel driver in use: fou or vxlan. none: this kernel lacks what --tunnel-driver needs; pods that name an Egress cannot start.",
    labelNames: ["driver"],
    registers: [registry],
  });
  const progress = {
    started: callCounter(registry, "grpc_server_started_total", "Calls of the CNI executable that coild received."),
    received: callCounter(
      registry,
      "grpc_server_msg_received_total",
      "Messages that were received from CNI executables.",
    ),
    sent: callCounter(registry, "grpc_server_msg_sent_total", "Messages that were sent to CNI executables."),
  };
  const repairs = new Counter({
    name: "coil_coild_kernel_repairs_total",
    help: "Objects of the pods' network that another program removed and coild restored. kind: host (rules, forwarding), links, pods (their routes and addresses on the host), guard (the tables of the source guard).",
    labelNames: ["kind"],
    registers: [registry],
  });
  startAtZero(repairs, { kind: ["host", "links", "pods", "guard"] });
  const conflicts = new Counter({
    name: "coil_coild_conflicts_total",
    help: "How many times another program began to remove objects of the pods' network repeatedly.",
    registers: [registry],
  });
  const collected = new Counter({
    name: "coil_coild_attachments_collected_total",
    help: "Attachments that were removed because their container runtime had forgotten them: without a sandbox and without a Pod object for --attachment-gc-grace.",
    registers: [registry],
  });
  const blockWait = new Histogram({
    name: "coil_coild_block_wait_seconds",
    help: "Time for which an ADD waited for a block, or for an address that another pod frees, whether the ADD got an address or not.",
    buckets: [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60],
    registers: [registry],
  });
  const handled = new Counter({
    name: "grpc_server_handled_total",
    help: "Finished calls of the CNI executable, whether they succeeded or failed.",
    labelNames: ["grpc_type", "grpc_service", "grpc_method", "grpc_code"],
    registers: [registry],
  });
  startAtZero(handled, {
    grpc_type: ["unary"],
    grpc_service: [SERVICE],
    grpc_method: METHODS,
    grpc_code: CODE_NAMES,
  });
  const duration = new Histogram({
    name: "coil_coild_cni_duration_seconds",
    help: "Time of a call inside coild. command: ADD, DEL, CHECK, STATUS, GC.",
    labelNames: ["command", "code"],
    buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5, 10, 60],
    registers: [registry],
  });
  const onHandled = (path: string, code: number, seconds: number): void => {
    const method = methodOf(path);
    if (method === undefined) return;
    const name = codeName(code);
    handled.inc({ ...labelsOf(method), grpc_code: name });
    duration.observe({ command: method.toUpperCase(), code: name }, seconds);
  };
  return {
    onProgress: (event, path) => {
      const method = methodOf(path);
      if (method !== undefined) progress[event].inc(labelsOf(method));
    },
    onRepaired: (repaired) => {
      for (const [kind, count] of Object.entries(repaired)) repairs.inc({ kind }, count);
    },
    onGuardRepaired: () => repairs.inc({ kind: "guard" }),
    onConflict: () => conflicts.inc(),
    onCollected: () => collected.inc(),
    observeGuard: (given) => {
      guard = given;
    },
    onBlockWait: (seconds) => blockWait.observe(seconds),
    onHandled,
    observe: (given) => {
      ipam = given;
    },
    onDriver: (name) => {
      driver.reset();
      driver.set({ driver: name }, 1);
    },
    onTwin: (isTwin) => twin.set(isTwin ? 1 : 0),
    observeClients: (given) => {
      clients = given;
    },
  };
}

/** The method of coild's service that a path names. A caller can request any path; only these become label values. */
function methodOf(path: string): string | undefined {
  return METHODS.find((method) => path === `/${SERVICE}/${method}`);
}

function labelsOf(method: string): Record<"grpc_type" | "grpc_service" | "grpc_method", string> {
  return { grpc_type: "unary", grpc_service: SERVICE, grpc_method: method };
}

function callCounter(registry: Registry, name: string, help: string): Counter {
  const labelNames = ["grpc_type", "grpc_service", "grpc_method"];
  const counter = new Counter({ name, help, labelNames, registers: [registry] });
  startAtZero(counter, { grpc_type: ["unary"], grpc_service: [SERVICE], grpc_method: METHODS });
  return counter;
}

/** The kernel counts; its counters begin anew with its tables. */
function guardCounter(registry: Registry, guard: () => Pick<SourceGuard, "counts"> | undefined): void {
  const seen = new Map<string, number>();
  const counter = new Counter({
    name: "coil_coild_source_guard_packets_total",
    help: "Packets that the source guard refused; with --source-guard=count they passed. reason: source (of a pod, with a source that is not its own), arp, link-local, outside (with a pod's source, by a link that is no pod's).",
    labelNames: ["reason"],
    registers: [registry],
    collect() {
      for (const [reason, count] of Object.entries(readCounts(guard()) ?? {})) {
        const before = seen.get(reason) ?? 0;
        this.inc({ reason }, count >= before ? count - before : count);
        seen.set(reason, count);
      }
    },
  });
  startAtZero(counter, { reason: [...GUARD_REASONS] });
}

/** `undefined` without a guard, and while its tables are missing: the next comparison makes them again. */
function readCounts(guard: Pick<SourceGuard, "counts"> | undefined): ReturnType<SourceGuard["counts"]> | undefined {
  try {
    return guard?.counts();
  } catch (error) {
    if (error instanceof NftError) return undefined;
    throw error;
  }
}

function routerGauges(registry: Registry, routers: () => ObservedClients["routers"] | undefined): void {
  new Gauge({
    name: "coil_coild_egress_router_up",
    help: "Whether a router that clients of this node use answers the probes of most of their namespaces: 1, or 0 for a dead one, which they do not use, and for one that does not answer again for long enough. Routers that have never answered have no value. At most 1000 routers.",
    labelNames: ["namespace", "egress", "router"],
    registers: [registry],
    collect() {
      this.reset();
      for (const { egress, router, verdict } of routers()?.verdicts ?? [])
        if (verdict !== "unproven")
          this.set({ namespace: egress.namespace, egress: egress.name, router }, verdict === "alive" ? 1 : 0);
    },
  });
  new Gauge({
    name: "coil_coild_egress_router_clients",
    help: "Pods of this node that a router serves at its own address, past the Service, because another router of the Egress is dead.",
    labelNames: ["namespace", "egress", "router"],
    registers: [registry],
    collect() {
      this.reset();
      for (const { egress, router } of routers()?.redirects ?? []) {
        const [namespace = "", name = ""] = egress.split("/");
        this.inc({ namespace, egress: name, router: router.name });
      }
    },
  });
}

function ipamGauges(registry: Registry, ipam: () => Source | undefined): void {
  new Gauge({
    name: "coil_coild_addresses",
    help: "Addresses of this node's blocks. state: used, free.",
    labelNames: ["pool", "state"],
    registers: [registry],
    collect() {
      this.reset();
      for (const block of ipam()?.snapshot().blocks ?? []) {
        this.inc({ pool: block.pool, state: "used" }, block.used);
        this.inc({ pool: block.pool, state: "free" }, block.free);
      }
    },
  });
  new Gauge({
    name: "coil_coild_blocks",
    help: "Blocks of this node.",
    labelNames: ["pool"],
    registers: [registry],
    collect() {
      this.reset();
      for (const block of ipam()?.snapshot().blocks ?? []) this.inc({ pool: block.pool });
    },
  });
  new Gauge({
    name: "coil_coild_cut_off_attachments",
    help: "Attachments that are cut off, because their blocks do not belong to this node any more. Alert when the value is not 0.",
    registers: [registry],
    collect() {
      this.set(ipam()?.lost.length ?? 0);
    },
  });
  new Gauge({
    name: "coil_coild_unknown_addresses",
    help: "Attachments whose addresses are in no block of this node, or whose block was deleted.",
    registers: [registry],
    collect() {
      this.set(ipam()?.snapshot().stranded ?? 0);
    },
  });
}
