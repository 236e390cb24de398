import { readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { FileError, replaceFile } from "#base/file";
import type { NicDevice } from "./device.ts";
import { DEVICES } from "./devices.ts";
import { NicCniError } from "./errors.ts";
import { route, texts, whole } from "./schemas.ts";
import type { DevicePlace, SandboxPlan } from "./types.ts";

/** The schema of the settings of a network with one of these kinds of devices. */
function settingsOf(devices: readonly NicDevice[]) {
  return v.object({
    type: v.picklist(devices.map(({ type }) => type)),
    plugMode: v.picklist(["auto", "hybrid", "direct"]),
    vmMode: v.picklist(["veth", "tap"]),
    vmMultiQueue: v.boolean(),
    vmOwnerUid: v.exactOptional(whole),
    ovsdb: v.exactOptional(v.string()),
    integrationBridge: v.exactOptional(v.string()),
    nsPrefix: v.string(),
    probe_tm_ms: whole,
    mizarTuning: v.boolean(),
  });
}

/** The schema of a plan whose places are those of some kinds of devices. */
function recordOf(devices: readonly NicDevice[]) {
  const kinds = devices.map(({ kind }) => kind);
  const place = v.lazy((value): v.GenericSchema<unknown, DevicePlace> => {
    const kind = typeof value === "object" && value !== null && "kind" in value ? value.kind : undefined;
    return devices.find((one) => one.kind === kind)?.placeSchema ?? v.object({ kind: v.picklist(kinds) });
  });
  return v.object({
    containerId: v.string(),
    podUid: v.string(),
    network: v.string(),
    ifname: v.exactOptional(v.string()),
    netns: v.string(),
    nics: v.array(
      v.object({
        name: v.string(),
        portId: v.string(),
        index: whole,
        metric: whole,
        mac: v.exactOptional(v.string()),
        mtu: v.exactOptional(whole),
        addresses: texts,
        routes: v.array(route),
        rules: v.array(v.object({ from: v.string(), table: whole, priority: whole })),
        secondary: v.exactOptional(v.boolean()),
        acceptRa: v.boolean(),
        place,
        pending: v.exactOptional(v.boolean()),
      }),
    ),
    dns: v.object({ nameservers: v.exactOptional(texts), search: v.exactOptional(texts) }),
    settings: v.exactOptional(settingsOf(devices)),
  });
}

const SUFFIX = ".json";
/** A leading dot: no plan. */
const PROBE = ".probe";
/** A plan of 32 NICs with their routes has some 30 KB. */
const PROBE_BYTES = 65_536;

/**
 * The plans of sandboxes on disk, one file for each container: written before anything is made, removed after all of it is removed. So DEL and
 * repairs need neither an API server nor the runtime's memory.
 */
export class Journal {
  readonly #folder: string;
  readonly #devices: readonly NicDevice[];

  /** The folder is made at the first write. Plans of devices that are none of `devices` are faults; default: those of this suite. */
  constructor(folder: string, devices: readonly NicDevice[] = DEVICES) {
    this.#folder = folder;
    this.#devices = devices;
  }

  /** Writes a plan; returns once it is on the disk. Throws {@link NicCniError} `journal`. */
  write(plan: SandboxPlan): void {
    try {
      replaceFile(this.#path(plan.containerId), JSON.stringify(plan), { mode: 0o600, folderMode: 0o700, sync: true });
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      throw new NicCniError("journal", error.message, { cause: error });
    }
  }

  /** Writes a file as large as a plan can be, and removes it. Throws {@link NicCniError} `journal`: then no NIC can be made. */
  probe(): void {
    const path = join(this.#folder, PROBE);
    try {
      replaceFile(path, new Uint8Array(PROBE_BYTES), { mode: 0o600, folderMode: 0o700, sync: true });
      rmSync(path, { force: true });
    } catch (error) {
      if (!(error instanceof FileError) && !(error instanceof Error && "syscall" in error)) throw error;
      throw new NicCniError("journal", `no NIC can be made: ${error.message}`, { cause: error });
    }
  }

  /** The plan of a container; `undefined` without one. Throws {@link NicCniError} `journal` if the file is not one of ours. */
  read(containerId: string): SandboxPlan | undefined {
    const path = this.#path(containerId);
    let text: string;
    try {
      text = readFileSync(path, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw new NicCniError("journal", `cannot read ${path}`, { cause: error });
    }
    return parsePlan(text, path, this.#devices);
  }

  /** All plans, and the faults of files that are none. Throws {@link NicCniError} `journal` if the folder cannot be read. */
  list(): { readonly plans: readonly SandboxPlan[]; readonly faults: readonly NicCniError[] } {
    let names: string[];
    try {
      names = readdirSync(this.#folder);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return { plans: [], faults: [] };
      throw new NicCniError("journal", `cannot read ${this.#folder}`, { cause: error });
    }
    const plans: SandboxPlan[] = [];
    const faults: NicCniError[] = [];
    for (const name of names.sort()) {
      // A name with a leading dot is a write that was interrupted.
      if (!name.endsWith(SUFFIX) || name.startsWith(".")) continue;
      try {
        const plan = this.read(name.slice(0, -SUFFIX.length));
        if (plan !== undefined) plans.push(plan);
      } catch (error) {
        if (!(error instanceof NicCniError)) throw error;
        faults.push(error);
      }
    }
    return { plans, faults };
  }

  /** Removes the plan of a container, if there is one. Throws {@link NicCniError} `journal`. */
  remove(containerId: string): void {
    const path = this.#path(containerId);
    try {
      rmSync(path, { force: true });
    } catch (error) {
      throw new NicCniError("journal", `cannot remove ${path}`, { cause: error });
    }
  }

  #path(containerId: string): string {
    // CNI allows no slash in it, and no leading dot.
    if (!/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,127}$/.test(containerId))
      throw new NicCniError("journal", `"${containerId}" is not a container id of at most 128 characters`);
    return join(this.#folder, `${containerId}${SUFFIX}`);
  }
}

/** Reads a plan. Throws {@link NicCniError} `journal`, which names the file. */
export function parsePlan(text: string, path: string, devices: readonly NicDevice[] = DEVICES): SandboxPlan {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new NicCniError("journal", `${path} is not JSON: remove it if its container is gone`, { cause: error });
  }
  const result = v.safeParse(recordOf(devices), value);
  if (result.success) return result.output;
  const [issue] = result.issues;
  throw new NicCniError("journal", `${path} is not a plan of NICs: ${v.getDotPath(issue) ?? "it"}: ${issue.message}`);
}
