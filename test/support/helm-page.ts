/** Stands in for `helm template`, for pages that call it where no Helm is: the chart as our own renderer has it, with `-f FILE` and `--set KEY=VALUE`. */
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { parseYaml } from "#base/yaml";
import { joinDocuments, readChart, readValues, renderChart, type Values } from "../../tools/manifests/index.ts";

const { positionals, values } = parseArgs({
  options: {
    namespace: { type: "string", default: "default" },
    values: { type: "string", short: "f", multiple: true, default: [] },
    set: { type: "string", multiple: true, default: [] },
  },
  allowPositionals: true,
});
const [command, name = "", folder = ""] = positionals;
if (command !== "template") throw new Error(`helm ${command} is not of the pages`);

/** `a.b=c` as the values that it sets. */
function setting(text: string): Values {
  const at = text.indexOf("=");
  const value = parseYaml(text.slice(at + 1)).value as Values[string];
  return text
    .slice(0, at)
    .split(".")
    .reduceRight<Values[string]>((inner, key) => ({ [key]: inner }), value) as Values;
}

function merge(base: Values, over: Values): Values {
  const isMap = (one: unknown): one is Values => typeof one === "object" && one !== null && !Array.isArray(one);
  const pairs = Object.entries(over).map(([key, value]) => {
    const before = base[key];
    return [key, isMap(before) && isMap(value) ? merge(before, value) : value] as const;
  });
  return { ...base, ...Object.fromEntries(pairs) };
}

const given = [
  ...values.values.map((file) => readValues(readFileSync(file, "utf8"), file)),
  ...values.set.map(setting),
].reduce(merge, {});
process.stdout.write(
  joinDocuments(renderChart(readChart(folder), given, { name, namespace: values.namespace }).values()),
);
