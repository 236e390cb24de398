import * as v from "valibot";
import { MigratorError } from "./errors.ts";
import type { V1Entry } from "./v1-data.ts";

const base64 = v.pipe(
  v.string(),
  v.regex(/^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/, "not base64"),
);
/** etcdctl leaves out an empty value, and leaves out `more` and `count` if they are zero. */
const exportSchema = v.object({
  kvs: v.nullish(v.array(v.object({ key: base64, value: v.nullish(base64, "") })), []),
  more: v.nullish(v.boolean(), false),
  count: v.nullish(v.number()),
});

/** The command that makes an export, for errors. */
const HOW = "make the export with `etcdctl get --prefix /coil/ -w json`";

/** Reads the output of `etcdctl get --prefix PREFIX -w json`. Throws {@link MigratorError} `invalid-export`. */
export function parseExport(text: string): V1Entry[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new MigratorError("invalid-export", `the export is not JSON: ${oneLine(error.message)}; ${HOW}`, {
      cause: error,
    });
  }
  // Without this check a list would count as an object without keys.
  if (Array.isArray(parsed))
    throw new MigratorError("invalid-export", `the export is not what etcdctl writes: a list; ${HOW}`);
  const { success, output, issues } = v.safeParse(exportSchema, parsed);
  if (!success) {
    const [first] = issues;
    const path = (first.path ?? []).map((item) => String(item.key)).join(".");
    const fault = `${path === "" ? "" : `${path}: `}${first.message}`;
    throw new MigratorError("invalid-export", `the export is not what etcdctl writes: ${fault}; ${HOW}`);
  }
  const { kvs, more, count } = output;
  if (more || (typeof count === "number" && count > kvs.length)) {
    const all = typeof count === "number" ? `${count}` : "more";
    const fault = `the export has only ${kvs.length} of ${all} keys`;
    throw new MigratorError("invalid-export", `${fault}; ${HOW}, without --limit`);
  }
  return kvs.map(({ key, value }) => ({
    key: Buffer.from(key, "base64").toString("utf8"),
    value: Buffer.from(value, "base64"),
  }));
}

/** The parser quotes the text, which may have line breaks. */
function oneLine(text: string): string {
  return text.replaceAll(/\s+/g, " ");
}
