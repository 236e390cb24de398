/** One sample of a metric. */
export interface Sample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** The maximum number of samples that are read of one answer. */
const MAX_SAMPLES = 10_000;
const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*/;
const LABEL = /^\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,?)/s;
const VALUE = /^\s+(\S+)(?:\s+-?\d+)?\s*$/;
const ESCAPES: Readonly<Record<string, string>> = { n: "\n" };

/**
 * The samples of some metrics in the Prometheus text format (prometheus.io/docs/instrumenting/exposition_formats). Lines of other metrics, comments
 * and lines that are not of the format are left out. At most 10,000 samples. Pure; throws nothing.
 */
export function parseExposition(text: string, wanted: ReadonlySet<string>): readonly Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    if (samples.length >= MAX_SAMPLES) break;
    const sample = parseSample(line, wanted);
    if (sample !== undefined) samples.push(sample);
  }
  return samples;
}

function parseSample(line: string, wanted: ReadonlySet<string>): Sample | undefined {
  const name = NAME.exec(line)?.[0];
  if (name === undefined || !wanted.has(name)) return undefined;
  let rest = line.slice(name.length);
  // A label may have the name of a member of all objects.
  const labels: Record<string, string> = Object.create(null);
  if (rest.startsWith("{")) {
    rest = rest.slice(1);
    for (let found = LABEL.exec(rest); found !== null; found = LABEL.exec(rest)) {
      const [all, label = "", value = "", comma] = found;
      labels[label] = value.replaceAll(/\\(.)/gs, (_all, char: string) => ESCAPES[char] ?? char);
      rest = rest.slice(all.length);
      if (comma === "") break;
    }
    const [end] = /^\s*\}/.exec(rest) ?? [];
    if (end === undefined) return undefined;
    rest = ` ${rest.slice(end.length)}`;
  }
  const text = VALUE.exec(rest)?.[1];
  const value = text === undefined ? undefined : numberOf(text);
  return value === undefined ? undefined : { name, labels, value };
}

function numberOf(text: string): number | undefined {
  if (/^[+-]?Inf$/i.test(text)) return text.startsWith("-") ? -Infinity : Infinity;
  if (/^NaN$/i.test(text)) return Number.NaN;
  return /^[+-]?(\d+(?:\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : undefined;
}

/** The sum of the samples of a metric whose labels have these values; `undefined` if there is none. Pure. */
export function sumOf(
  samples: readonly Sample[],
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const found = samples.filter(
    (sample) => sample.name === name && Object.entries(labels).every(([key, value]) => sample.labels[key] === value),
  );
  return found.length === 0 ? undefined : found.reduce((sum, { value }) => sum + value, 0);
}
