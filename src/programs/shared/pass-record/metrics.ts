import { Gauge, type Registry } from "#base/metrics";

/** Declares the metric of objects that are set aside. Returns a function that gives it its source. */
export function asideMetrics(registry: Registry): (source: () => Iterable<{ readonly controller: string }>) => void {
  let read: () => Iterable<{ readonly controller: string }> = () => [];
  const names = new Set<string>();
  new Gauge({
    name: "isthmus_controller_objects_set_aside",
    help: "Objects that are left out for a time, because the program ended while they were reconciled or read; --record-dir.",
    labelNames: ["controller"] as const,
    registers: [registry],
    collect() {
      for (const controller of names) this.set({ controller }, 0);
      for (const { controller } of read()) {
        names.add(controller);
        this.inc({ controller });
      }
    },
  });
  return (source) => {
    read = source;
  };
}
