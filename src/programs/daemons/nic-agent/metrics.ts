import { Counter, Histogram, type Registry, startAtZero } from "#base/metrics";
import { CODE_NAMES, codeName } from "../../shared/metrics/index.ts";

const METHODS = ["Add", "Del", "Check", "Status", "GC"] as const;
const STEPS = ["plumbable", "plug", "active"] as const;

/** Declares the metrics of `nic-agent`. */
export function nicAgentMetrics(registry: Registry): {
  readonly onHandled: (path: string, code: number) => void;
  readonly onStep: (step: (typeof STEPS)[number], seconds: number) => void;
  readonly onReplugged: (ports: number) => void;
} {
  const calls = new Counter({
    name: "vpc_cni_calls_total",
    help: "Calls of the executables vpc-neutron and vpc-alcor, by gRPC code.",
    labelNames: ["method", "code"],
    registers: [registry],
  });
  startAtZero(calls, { method: METHODS, code: CODE_NAMES });
  const steps = new Histogram({
    name: "vpc_cni_add_seconds",
    help: "Time of a step of ADD. step: plumbable (the wait for bound ports), plug (devices and switch), active (the wait for active ports).",
    labelNames: ["step"] as const,
    registers: [registry],
  });
  for (const step of STEPS) steps.zero({ step });
  const replugged = new Counter({
    name: "vpc_ports_replugged_total",
    help: "Ports that the switch had lost and that were plugged again.",
    registers: [registry],
  });
  return {
    onHandled: (path, code) => {
      const method = METHODS.find((one) => path.endsWith(`/${one}`));
      if (method !== undefined) calls.inc({ method, code: codeName(code) });
    },
    onStep: (step, seconds) => steps.observe({ step }, seconds),
    onReplugged: (ports) => replugged.inc(ports),
  };
}
