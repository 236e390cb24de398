import { readlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Estate } from "#base/estate";
import type { IpAddress } from "#base/ip";
import type { ReadEstates } from "../../shared/estate/index.ts";
import { optional } from "../../shared/suite/index.ts";

/** The paths of an installation, and what its programs own. */
export interface NodePlaces {
  /** The folder that has the node's files; empty for the root. */
  readonly root: string;
  readonly cniEtcDir: string;
  readonly cniBinDir: string;
  /** The estates of the programs that run on nodes, with their default flags. */
  readonly templates: ReadonlyMap<string, Estate>;
  /** The sets of estates, of the flags and of the defaults. */
  readonly owned: ReadEstates;
  /** Bind addresses of the tunnel. */
  readonly bindAddress: readonly IpAddress[];
  /** Names of the programs that run on nodes. */
  readonly nodePrograms: ReadonlySet<string>;
}

/** As many links in a path as the kernel follows. */
const MAX_LINKS = 40;

/**
 * The path of a node's file. Below a root the links of folders are followed as the node follows them: an absolute link begins at the root again.
 * The file itself may be a link.
 */
export function inRoot({ root }: Pick<NodePlaces, "root">, path: string): string {
  if (root === "") return path;
  let left = path.split("/").filter((part) => part !== "");
  let folder = "/";
  for (let links = 0; left.length > 1; ) {
    const [part = "", ...rest] = left;
    const next = join(folder, part);
    const target = linkTarget(join(root, next));
    if (target === undefined || links >= MAX_LINKS) [folder, left] = [next, rest];
    else {
      links += 1;
      if (target.startsWith("/")) folder = "/";
      left = [...target.split("/").filter((one) => one !== ""), ...rest];
    }
  }
  return join(root, folder, ...left);
}

function linkTarget(path: string): string | undefined {
  return optional(() => readlinkSync(path));
}

/** The path of a folder of the node, whose own link is followed too. */
export function folderInRoot(at: Pick<NodePlaces, "root">, path: string): string {
  return dirname(inRoot(at, `${path}/file`));
}
