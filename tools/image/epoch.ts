import { execFileSync } from "node:child_process";

/** The time of all files that are shipped, in seconds since 1970: that of the commit, or `SOURCE_DATE_EPOCH`. Throws if that is no number. */
export function epochOf(root: string): number {
  const given = process.env["SOURCE_DATE_EPOCH"];
  const text =
    given ?? execFileSync("git", ["-C", root, "log", "--max-count=1", "--format=%ct"], { encoding: "utf8" }).trim();
  const epoch = Number(text);
  if (!Number.isInteger(epoch) || epoch < 0) throw new Error(`SOURCE_DATE_EPOCH: "${text}" is not a number of seconds`);
  return epoch;
}
