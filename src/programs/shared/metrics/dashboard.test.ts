import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { declaredMetrics } from "./testing/declared.ts";

const FILE = join(import.meta.dirname, "../../../../deploy/grafana/pod-network.json");
const PROGRAMS = ["coild", "coil-ipam-controller", "coil-egress-controller", "coil-router", "coil-egress"];
/** Words of PromQL that the dashboard has. */
const WORDS: ReadonlySet<string> = new Set("sum max min count by rate time histogram_quantile".split(" "));
/** Labels that Prometheus adds, and that of a histogram's buckets. */
const ADDED = ["instance", "le"];

interface Panel {
  readonly type: string;
  readonly title: string;
  readonly targets?: readonly { readonly expr: string; readonly legendFormat: string }[];
}

/** The names of series and the labels of each. */
async function series(): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const found = new Map<string, ReadonlySet<string>>();
  for (const program of PROGRAMS) {
    for (const { name, type, labelNames } of await declaredMetrics(program))
      for (const suffix of type === "histogram" ? ["_bucket", "_sum", "_count"] : [""])
        found.set(name + suffix, new Set([...labelNames, ...ADDED]));
  }
  return found;
}

test("deploy/grafana: each panel asks for metrics that a program has, by labels that these have, and names them in its legend", async () => {
  const known = await series();
  const { panels } = JSON.parse(readFileSync(FILE, "utf8")) as { readonly panels: readonly Panel[] };
  const asked = new Set<string>();
  for (const { title, targets = [] } of panels)
    for (const { expr, legendFormat } of targets) {
      const grouped = [...expr.matchAll(/by \(([^)]*)\)/g)].flatMap(([, labels = ""]) => labels.split(", "));
      const names = expr.replaceAll(/by \([^)]*\)|\[[^\]]*\]/g, "").match(/[a-z_]{3,}/g) ?? [];
      const metrics = names.filter((name) => !WORDS.has(name));
      assert.notDeepEqual(metrics, [], title);
      for (const metric of metrics) {
        asked.add(metric);
        const labels = known.get(metric) ?? assert.fail(`${title}: no program has ${metric}`);
        for (const label of grouped) assert.ok(labels.has(label), `${title}: ${metric} has no label ${label}`);
      }
      const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = ""]) => label);
      const named = new Set(grouped.filter((label) => label !== "le"));
      assert.deepEqual(shown.toSorted(), [...named].toSorted(), title);
    }
  // What Coil has too, and what each program beyond it is about.
  const own = [...known.keys()].filter(
    (name) => /^coil_(coild|router)_/.test(name) && !/_(bucket|sum|count)$/.test(name),
  );
  const missing = own.filter((name) => !asked.has(name) && name !== "coil_router_syncs_total");
  assert.deepEqual(missing, []);
});

test("deploy/grafana: panels have ids of their own, and none covers another", () => {
  const { panels } = JSON.parse(readFileSync(FILE, "utf8")) as {
    readonly panels: readonly (Panel & {
      readonly id: number;
      readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number };
    })[];
  };
  assert.equal(new Set(panels.map(({ id }) => id)).size, panels.length);
  const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
    Array.from({ length: w * h }, (_, at) => `${x + (at % w)} ${y + Math.floor(at / w)}`),
  );
  assert.equal(new Set(cells).size, cells.length);
  for (const { gridPos, title } of panels) assert.ok(gridPos.x + gridPos.w <= 24, title);
});
