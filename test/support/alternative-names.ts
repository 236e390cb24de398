/** Gives a link as many alternative names as the kernel takes, some 64 KiB, as whoever has CAP_NET_ADMIN in its namespace can. */
import { spawnSync } from "node:child_process";

/** More names of the greatest length, 127 characters, than the kernel takes. */
const TRIES = 520;
const LENGTH = 127;

/** `netns`: the name of the namespace. Returns the number of names. */
export function fillAlternativeNames(netns: string, link: string): number {
  const lines = Array.from(
    { length: TRIES },
    (_, at) => `link property add dev ${link} altname ${String(at).padStart(LENGTH, "x")}\n`,
  );
  const { stderr } = spawnSync("ip", ["-n", netns, "-force", "-batch", "-"], {
    input: lines.join(""),
    encoding: "utf8",
  });
  return TRIES - stderr.split("\n").filter((line) => line.startsWith("Command failed")).length;
}
