/**
 * Builds a package for Debian 12 on x86-64: the suite with its own Node, for Debian or for npm, or the CNI executables, for Debian.
 *
 *     ./run package [--format=deb|cni|npm] [--output FILE] [--level=0..9]
 */
import { mkdtempSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { makeDeb } from "./package/deb.ts";
import type { PackageJob } from "./package/job.ts";
import { makeNpm } from "./package/npm.ts";

interface Format {
  readonly file: (version: string) => string;
  readonly make: (job: PackageJob) => void | Promise<void>;
  readonly install: (file: string) => string;
}

const FORMATS: Readonly<Record<string, Format>> = {
  deb: {
    file: (version) => `isthmus_${version}_amd64.deb`,
    make: (job) => makeDeb("isthmus", job),
    install: (file) => `apt install ./${file}`,
  },
  cni: {
    file: (version) => `isthmus-cni_${version}_amd64.deb`,
    make: (job) => makeDeb("isthmus-cni", job),
    install: (file) => `apt install ./${file}`,
  },
  npm: {
    file: (version) => `isthmus-${version}.tgz`,
    make: makeNpm,
    install: (file) => `npm install --global ./${file}`,
  },
};

const { version } = JSON.parse(readFileSync(join(import.meta.dirname, "../package.json"), "utf8")) as {
  readonly version: string;
};
const { values } = parseArgs({
  options: {
    format: { type: "string", default: "deb" },
    output: { type: "string" },
    level: { type: "string", default: "6" },
  },
});
const format = Object.hasOwn(FORMATS, values.format) ? FORMATS[values.format] : undefined;
if (format === undefined) {
  console.error(`--format: "${values.format}" is none of ${Object.keys(FORMATS).join(", ")}`);
  process.exit(2);
}
const level = Number(values.level);
if (!/^\d$/.test(values.level)) {
  console.error(`--level: "${values.level}" is no level of gzip, from 0 to 9`);
  process.exit(2);
}
const work = mkdtempSync(join(tmpdir(), "isthmus-package-"));
try {
  const output = resolve(values.output ?? format.file(version));
  await format.make({ output, work, version, level, say: (text) => void process.stderr.write(`${text} …\n`) });
  console.log(`${output}: ${(statSync(output).size / 1024 / 1024).toFixed(1)} MiB`);
  console.log(`to install it: ${format.install(basename(output))}`);
} finally {
  rmSync(work, { recursive: true, force: true });
}
