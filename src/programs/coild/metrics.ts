import { Counter, Gauge, Histogram, type Registry, startAtZero } from "#base/metrics";
import type { NodeIpam } from "#features/ipam";
import { CODE_NAMES, codeName } from "../metrics/index.ts";

const SERVICE = "pkg.cnirpc.CNI";
const METHODS = ["Add", "Del", "Check", "Status", "GC"] as const;

type Source = Pick<NodeIpam, "snapshot" | "lost">;

/** Declares coild's metrics. `onHandled` counts a finished call of gRPC; the gauges of addresses have no values before `observe`. */
export function coildMetrics(registry: Registry): {
  readonly onHandled: (path: string, code: number, seconds: number) => void;
  readonly observe: (ipam: Source) => void;
} {
  let ipam: Source | undefined;
  ipamGauges(registry, () => ipam);
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
    // A caller can request any path; only the paths of coild's own methods become label values.
    const match = /^\/(pkg\.cnirpc\.CNI)\/(Add|Del|Check|Status|GC)$/.exec(path);
    if (match === null) return;
    const [, service = "", method = ""] = match;
    const name = codeName(code);
    handled.inc({ grpc_type: "unary", grpc_service: service, grpc_method: method, grpc_code: name });
    duration.observe({ command: method.toUpperCase(), code: name }, seconds);
  };
  return {
    onHandled,
    observe: (given) => {
      ipam = given;
    },
  };
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
    help: "Attachments that are cut off, because their blocks are not this node's any more. Alert when it is not 0.",
    registers: [registry],
    collect() {
      this.set(ipam()?.lost.length ?? 0);
    },
  });
  new Gauge({
    name: "coil_coild_unknown_addresses",
    help: "Attachments whose addresses are in no block of this node, or whose block vanished.",
    registers: [registry],
    collect() {
      this.set(ipam()?.snapshot().stranded ?? 0);
    },
  });
}
