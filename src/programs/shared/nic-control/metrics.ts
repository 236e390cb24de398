import { Counter, Gauge, Histogram, type Registry } from "#base/metrics";

const PHASES = ["Pending", "Creating", "Created", "Binding", "Plumbable", "Active", "Failed", "Releasing"] as const;

/** The state of the leader at the time when metrics are read. */
export interface NicState {
  readonly phases: () => Iterable<{ readonly phase: (typeof PHASES)[number]; readonly createdAt: number }>;
  readonly depth: () => number;
}

/** Callbacks that count. */
export interface NicMetrics {
  readonly observe: (state: NicState) => void;
  readonly requested: (sample: { readonly operation: string; readonly code: string; readonly type: string }) => void;
  readonly circuit: (provider: string, isOpen: boolean) => void;
  readonly refreshed: (succeeded: boolean) => void;
  readonly bulk: (count: number) => void;
  readonly created: (provider: string, count: number, seconds: number) => void;
  readonly duplicates: (count: number) => void;
  readonly active: (seconds: number) => void;
  readonly orphans: (count: number) => void;
}

/** Declares the metrics of VPC NICs (docs/spec/vpc-nics.md#11). */
export function nicMetrics(registry: Registry): NicMetrics {
  const registers = [registry];
  let state: NicState | undefined;
  const create = new Histogram({
    name: "vpc_port_create_seconds",
    help: "Time until requested ports are there. bulk: whether they were several.",
    labelNames: ["provider", "bulk"] as const,
    buckets: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
    registers,
  });
  const bulk = new Histogram({
    name: "vpc_bulk_size",
    help: "Ports of a request that makes ports.",
    buckets: [1, 2, 5, 10, 20, 30, 40, 50],
    registers,
  });
  const requests = new Counter({
    name: "vpc_api_requests_total",
    help: "Requests to providers. op: such as create-ports. code: the HTTP status, or why there was none. type: the provider's name of a fault.",
    labelNames: ["op", "code", "type"] as const,
    registers,
  });
  new Gauge({
    name: "vpc_claims",
    help: "Claims in a phase, on the leader.",
    labelNames: ["phase"] as const,
    registers,
    collect() {
      for (const phase of PHASES) this.set({ phase }, 0);
      for (const { phase } of state?.phases() ?? []) this.inc({ phase });
    },
  });
  new Gauge({
    name: "vpc_claim_age_seconds",
    help: "Age of the oldest claim in a phase, on the leader; 0: there is none.",
    labelNames: ["phase"] as const,
    registers,
    collect() {
      const oldest = new Map<string, number>();
      for (const { phase, createdAt } of state?.phases() ?? []) {
        if (Number.isFinite(createdAt)) oldest.set(phase, Math.min(oldest.get(phase) ?? createdAt, createdAt));
      }
      for (const phase of PHASES) {
        const at = oldest.get(phase);
        this.set({ phase }, at === undefined ? 0 : Math.max(0, (Date.now() - at) / 1000));
      }
    },
  });
  const active = new Histogram({
    name: "vpc_port_active_seconds",
    help: "Time from the node's report of a plugged interface until its port is active.",
    buckets: [0.25, 0.5, 1, 2, 4, 8, 15, 30, 60],
    registers,
  });
  const counter = (name: string, help: string) => new Counter({ name, help, registers });
  const orphans = counter("vpc_orphans_deleted_total", "Ports without a claim that were deleted.");
  const duplicates = counter("vpc_duplicate_ports_total", "Second ports of a NIC that were deleted.");
  const refreshes = new Counter({
    name: "vpc_token_refresh_total",
    help: "Authentications at Keystone. result: success or error.",
    labelNames: ["result"] as const,
    registers,
  });
  for (const result of ["success", "error"]) refreshes.inc({ result }, 0);
  const circuit = new Gauge({
    name: "vpc_circuit_open",
    help: "1 while a provider is not asked, because it has not answered; else 0.",
    labelNames: ["provider"] as const,
    registers,
  });
  new Gauge({
    name: "vpc_queue_depth",
    help: "Claims that wait for a pass, on the leader.",
    registers,
    collect() {
      this.set(state?.depth() ?? 0);
    },
  });
  return {
    observe: (given) => {
      state = given;
    },
    requested: ({ operation, code, type }) => requests.inc({ op: operation, code, type }),
    circuit: (provider, isOpen) => circuit.set({ provider }, Number(isOpen)),
    refreshed: (succeeded) => refreshes.inc({ result: succeeded ? "success" : "error" }),
    bulk: (count) => bulk.observe(count),
    created: (provider, count, seconds) => create.observe({ provider, bulk: String(count > 1) }, seconds),
    duplicates: (count) => duplicates.inc(count),
    active: (seconds) => active.observe(seconds),
    orphans: (count) => orphans.inc(count),
  };
}
